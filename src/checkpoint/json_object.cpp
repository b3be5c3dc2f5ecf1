#include "checkpoint/json_object.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace ingot::checkpoint {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& source) {
  try {
    return parse_lenient_json(text);
  } catch (const Error& error) {
    throw_error(error.kind(), "{} {}", source, error.message());
  }
}

json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path, uint64_t{1} << 30), path.string());
}

JsonObject::JsonObject(const json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) throw_error(ErrorKind::corrupt, "{} is not a JSON object", where_);
}

const json* JsonObject::find(const char* key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::is_null(const char* key) const {
  const auto found = value_->find(key);
  return found != value_->end() && found->is_null();
}

void JsonObject::wrong(const char* key, const char* expected) const {
  throw_error(ErrorKind::corrupt, "{}: \"{}\" is not {}", where_, key, expected);
}

std::optional<int64_t> JsonObject::integer(const char* key) const {
  const json* member = find(key);
  if (member == nullptr) return std::nullopt;
  return whole(*member, key);
}

int64_t JsonObject::whole(const json& value, const char* key) const {
  if (!value.is_number()) wrong(key, "a whole number");
  const double number = value.get<double>();
  if (number != std::floor(number)) wrong(key, "a whole number");
  constexpr double limit = 9e15;  // every integer below is exact in a double
  if (std::abs(number) >= limit) {
    throw_error(ErrorKind::corrupt, "{}: \"{}\" is {}; whole numbers here are below {:.0e}", where_, key, value.dump(),
                limit);
  }
  return static_cast<int64_t>(number);
}

std::optional<double> JsonObject::number(const char* key) const {
  const json* member = find(key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_number()) wrong(key, "a number");
  return member->get<double>();
}

std::optional<bool> JsonObject::boolean(const char* key) const {
  const json* member = find(key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_boolean()) wrong(key, "true or false");
  return member->get<bool>();
}

std::optional<std::string> JsonObject::string(const char* key) const {
  const json* member = find(key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_string()) wrong(key, "a string");
  return member->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(const char* key) const {
  const json* member = find(key);
  if (member == nullptr) return std::nullopt;
  return JsonObject(*member, fmt::format("{}: {}", where_, key));
}

std::vector<int64_t> JsonObject::integers(const char* key) const {
  std::vector<int64_t> values;
  const json* member = find(key);
  if (member == nullptr) return values;
  if (!member->is_array()) return {integer(key).value()};
  for (const json& item : *member) {
    if (!item.is_number_integer()) wrong(key, "a number or a list of numbers");
    values.push_back(whole(item, key));
  }
  return values;
}

std::vector<std::string> JsonObject::strings(const char* key) const {
  std::vector<std::string> values;
  const json* member = find(key);
  if (member == nullptr) return values;
  if (member->is_string()) return {member->get<std::string>()};
  if (!member->is_array()) wrong(key, "a list of strings");
  for (const json& item : *member) {
    if (!item.is_string()) wrong(key, "a list of strings");
    values.push_back(item.get<std::string>());
  }
  return values;
}

int64_t JsonObject::required_integer(const char* key) const {
  const std::optional<int64_t> value = integer(key);
  if (!value) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing", where_, key);
  return *value;
}

}  // namespace ingot::checkpoint
