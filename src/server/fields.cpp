#include "server/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ingot::server {

namespace {

template <class Number>
ApiError outside(const std::string& path, const Json& got, Number low, Number high) {
  return bad_field(path, "invalid_value",
                   fmt::format("'{}' is {}; it must be from {} to {}.", path, got.dump(), low, high));
}

[[noreturn]] void wrong_type(const std::string& path, const char* wanted, const Json& got) {
  throw bad_field(path, "invalid_type",
                  fmt::format("'{}' must be {}; it is of type {}.", path, wanted, got.type_name()));
}

}  // namespace

std::string text_at(const Json& value, const std::string& path) {
  if (!value.is_string()) wrong_type(path, "a string", value);
  return value.get<std::string>();
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  if (!path_.empty()) wrong_type(path_, "an object", object);
  ApiError error(400, fmt::format("The body must be a JSON object; it is of type {}.", object.type_name()));
  error.code = "invalid_type";
  throw error;
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::find(const char* name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

ApiError Fields::missing(const char* name) const {
  return bad_field(path_of(name), "missing_required_parameter", fmt::format("'{}' is missing.", path_of(name)));
}

bool Fields::has(const char* name) { return find(name) != nullptr; }

const Json* Fields::any(const char* name) { return find(name); }

const Json* Fields::array(const char* name, size_t min_items, size_t max_items) {
  const Json* value = find(name);
  if (!value) return nullptr;
  if (!value->is_array()) wrong_type(path_of(name), "an array", *value);
  if (value->size() < min_items || value->size() > max_items) {
    throw bad_field(path_of(name), "invalid_value",
                    fmt::format("'{}' has {} items; it must have from {} to {}.", path_of(name), value->size(),
                                min_items, max_items));
  }
  return value;
}

const Json* Fields::object(const char* name) {
  const Json* value = find(name);
  if (value && !value->is_object()) wrong_type(path_of(name), "an object", *value);
  return value;
}

const Json& Fields::needed_array(const char* name, size_t min_items, size_t max_items) {
  if (const Json* value = array(name, min_items, max_items)) return *value;
  throw missing(name);
}

const Json& Fields::needed_object(const char* name) {
  if (const Json* value = object(name)) return *value;
  throw missing(name);
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  return text_at(*value, path_of(name));
}

std::string Fields::needed_text(const char* name) {
  if (std::optional<std::string> value = text(name)) return *std::move(value);
  throw missing(name);
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) wrong_type(path_of(name), "true or false", *value);
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) wrong_type(path_of(name), "an integer", *value);
  const bool beyond = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t number = beyond ? 0 : value->get<int64_t>();
  if (beyond || number < low || number > high) throw outside(path_of(name), *value, low, high);
  return number;
}

std::optional<double> Fields::number(const char* name, double low, double high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) wrong_type(path_of(name), "a number", *value);
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) throw outside(path_of(name), *value, low, high);
  return number;
}

std::optional<std::string> Fields::word(const char* name, const std::vector<std::string>& words) {
  std::optional<std::string> value = text(name);
  if (value && std::find(words.begin(), words.end(), *value) == words.end()) {
    throw bad_field(path_of(name), "invalid_value",
                    fmt::format("'{}' must be one of: {}.", path_of(name), fmt::join(words, ", ")));
  }
  return value;
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || known_.contains(name)) continue;
    const std::string shown = name.substr(0, 64);
    throw bad_field(path_of(shown), "unsupported_parameter", fmt::format("'{}' is not supported.", path_of(shown)));
  }
}

}  // namespace ingot::server
