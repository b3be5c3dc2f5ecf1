// JSON settings files, with error messages that name file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::checkpoint {

// Errors: corrupt, naming `source`, for text that is not JSON.
nlohmann::json parse_json(std::string_view text, const std::string& source);
// Errors: those of read_file (files over 1 GiB: resource), and corrupt.
nlohmann::json read_json(const std::filesystem::path& path);

// The members of a JSON object, which must outlive this. A null member counts as missing. Errors: corrupt, naming
// `where` and the key, for a member of another type.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  const nlohmann::json* find(const char* key) const;  // null when missing
  bool has(const char* key) const { return find(key) != nullptr; }
  bool is_null(const char* key) const;                    // present, with the value null
  std::optional<int64_t> integer(const char* key) const;  // accepts 8.0; magnitude below 9e15
  std::optional<double> number(const char* key) const;
  std::optional<bool> boolean(const char* key) const;
  std::optional<std::string> string(const char* key) const;
  std::optional<JsonObject> object(const char* key) const;
  // A number or a list of numbers; empty when missing.
  std::vector<int64_t> integers(const char* key) const;
  std::vector<std::string> strings(const char* key) const;
  // Errors: corrupt also when missing.
  int64_t required_integer(const char* key) const;

 private:
  [[noreturn]] void wrong(const char* key, const char* expected) const;
  int64_t whole(const nlohmann::json& value, const char* key) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace ingot::checkpoint
