// The members of a request's JSON object, each read once with its type and range; what is left over is refused.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace ingot::server {

using Json = nlohmann::ordered_json;

// A null member counts as one that is not there. Errors are ApiErrors that name the member by its path
// ("messages[0].role").
class Fields {
 public:
  // `path` stands before the members' names, "" for the body itself. Errors: invalid_type when it is no object.
  Fields(const Json& object, std::string path);

  bool has(const char* name);  // there, and not null
  // Null when it is not there; those that are needed are refused as `missing` then.
  const Json* any(const char* name);
  const Json* array(const char* name, size_t least, size_t most);
  const Json& needed_array(const char* name, size_t least, size_t most);
  const Json* object(const char* name);
  const Json& needed_object(const char* name);
  std::optional<std::string> text(const char* name);
  std::string needed_text(const char* name);
  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  // One of the words.
  std::optional<std::string> word(const char* name, const std::vector<std::string>& words);

  // These change nothing of what this server gives: they are passed over.
  void ignore(std::initializer_list<const char*> names);
  // Errors: unsupported_parameter for the first member that nobody asked for.
  void finish() const;

  std::string path_of(std::string_view name) const;
  ApiError missing(const char* name) const;  // missing_required_parameter

 private:
  const Json* find(const char* name);

  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// Errors: invalid_type, naming the place.
std::string text_at(const Json& value, const std::string& path);

}  // namespace ingot::server
