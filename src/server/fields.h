// Reads the members of a request's JSON object, each once with its type and range, and refuses members that are left
// over.
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

// A null member counts as absent. Errors are ApiErrors that name the member by its path ("messages[0].role").
class Fields {
 public:
  // `path`: prefix of the members' names, "" for the body itself. Errors: invalid_type when it is not an object.
  Fields(const Json& object, std::string path);

  bool has(const char* name);  // present and not null
  // Null when the member is absent; the needed_* functions throw `missing` then.
  const Json* any(const char* name);
  const Json* array(const char* name, size_t min_items, size_t max_items);
  const Json& needed_array(const char* name, size_t min_items, size_t max_items);
  const Json* object(const char* name);
  const Json& needed_object(const char* name);
  std::optional<std::string> text(const char* name);
  std::string needed_text(const char* name);
  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  // One of `words`.
  std::optional<std::string> word(const char* name, const std::vector<std::string>& words);

  // Accepts members that have no effect in this server.
  void ignore(std::initializer_list<const char*> names);
  // Errors: unsupported_parameter for the first member that was neither read nor ignored.
  void finish() const;

  std::string path_of(std::string_view name) const;
  ApiError missing(const char* name) const;  // missing_required_parameter

 private:
  const Json* find(const char* name);

  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// The value as a string. Errors: invalid_type, naming `path`.
std::string text_at(const Json& value, const std::string& path);

}  // namespace ingot::server
