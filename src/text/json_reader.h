// The parts of a tokenizer.json, with errors that say where they stand.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::text {

using nlohmann::json;

// The members of one JSON object that outlives this. Errors: corrupt, naming the place, for members of another type.
class Reader {
 public:
  Reader(const json& value, std::string where);

  const std::string& where() const { return where_; }

  const json& at(const char* key) const;  // null when it is missing
  bool boolean(const char* key, bool fallback) const;
  std::string string(const char* key) const;
  const json& array(const char* key) const;
  Reader object(const char* key) const;
  int32_t integer(const char* key) const;  // from 0 on

  static int32_t integer(const json& value, const std::string& where);

 private:
  const json& value_;
  std::string where_;
};

// ErrorKind::unsupported, naming `what` and where it stands.
[[noreturn]] void refuse(const Reader& at, const std::string& what);

}  // namespace ingot::text
