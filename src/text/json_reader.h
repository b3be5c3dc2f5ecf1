// Typed access to the members of a tokenizer.json, with errors that give their location.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::text {

using nlohmann::json;

// Reads the members of one JSON object, which must outlive the reader. Errors: corrupt, with the location, for a member
// of another type.
class Reader {
 public:
  Reader(const json& value, std::string where);

  const std::string& where() const { return where_; }

  const json& at(const char* key) const;  // null if missing
  bool boolean(const char* key, bool fallback) const;
  std::string string(const char* key) const;
  const json& array(const char* key) const;
  Reader object(const char* key) const;
  int32_t integer(const char* key) const;  // not negative

  static int32_t integer(const json& value, const std::string& where);

 private:
  const json& value_;
  std::string where_;
};

// Throws ErrorKind::unsupported with `what` and its location.
[[noreturn]] void refuse(const Reader& at, const std::string& what);

}  // namespace ingot::text
