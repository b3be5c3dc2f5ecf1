// The key-value metadata of a GGUF file, with the types stored in the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ingot::formats {

// A list. The index of the variant alternative is the element's type id in the file (9, a list of lists, does not
// occur).
struct GgufArray {
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
               std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
               std::vector<std::string>, std::monostate, std::vector<uint64_t>, std::vector<int64_t>,
               std::vector<double>>
      items;
  friend bool operator==(const GgufArray&, const GgufArray&) = default;
};

// The index of the variant alternative is the value's type id in the file.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                               GgufArray, uint64_t, int64_t, double>;

// "u8", ..., "string", "array", ... for a type id 0..12.
std::string_view gguf_value_type_name(size_t type_id);

// Unique keys in file order. Getters convert between numeric types when the value fits, and otherwise throw `corrupt`
// naming file, key, and the type found; without a fallback a missing key is `not_found`.
class GgufMetadata {
 public:
  // `source` names the file in messages.
  explicit GgufMetadata(std::string source = "GGUF metadata") : source_(std::move(source)) {}

  // Appends. Errors: `corrupt` for an existing key, `internal` for a list without element type.
  void add(std::string key, GgufValue value);

  const std::vector<std::pair<std::string, GgufValue>>& items() const { return items_; }
  const GgufValue* find(std::string_view key) const;  // null when there is none
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue& at(std::string_view key) const;

  int64_t integer(std::string_view key) const;  // any integer type
  int64_t integer(std::string_view key, int64_t fallback) const;
  double real(std::string_view key) const;  // any float or integer type
  double real(std::string_view key, double fallback) const;
  bool boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  const std::string& text(std::string_view key) const;  // bytes as stored; UTF-8 is not checked
  std::string text(std::string_view key, std::string_view fallback) const;

  const std::vector<std::string>& texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;  // a list of any integer type
  std::vector<double> reals(std::string_view key) const;      // a list of any float or integer type

 private:
  [[noreturn]] void wrong(std::string_view key, const GgufValue& found, std::string_view wanted) const;
  const GgufArray& array(std::string_view key, std::string_view wanted) const;

  std::string source_;
  std::vector<std::pair<std::string, GgufValue>> items_;
  std::map<std::string, size_t, std::less<>> index_by_key_;  // key -> index in items_
};

}  // namespace ingot::formats
