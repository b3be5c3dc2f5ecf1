#include "text/json_reader.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot::text {

Reader::Reader(const json& value, std::string where) : value_(value), where_(std::move(where)) {
  if (!value.is_object()) throw_error(ErrorKind::corrupt, "{} is not an object", where_);
}

const json& Reader::at(const char* key) const {
  static const json null;
  const auto found = value_.find(key);
  return found == value_.end() ? null : *found;
}

bool Reader::boolean(const char* key, bool fallback) const {
  const json& member = at(key);
  if (member.is_null()) return fallback;
  if (!member.is_boolean()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not true or false", where_, key);
  return member.get<bool>();
}

std::string Reader::string(const char* key) const {
  const json& member = at(key);
  if (!member.is_string()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing or not a string", where_, key);
  return member.get<std::string>();
}

const json& Reader::array(const char* key) const {
  const json& member = at(key);
  if (!member.is_array()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing or not a list", where_, key);
  return member;
}

Reader Reader::object(const char* key) const { return {at(key), where_ + "." + key}; }

int32_t Reader::integer(const char* key) const { return integer(at(key), where_ + "." + key); }

int32_t Reader::integer(const json& value, const std::string& where) {
  if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > INT32_MAX) {
    throw_error(ErrorKind::corrupt, "{} is missing or not a number from 0 to {}", where, INT32_MAX);
  }
  return value.get<int32_t>();
}

void refuse(const Reader& at, const std::string& what) {
  throw_hint(ErrorKind::unsupported,
             "Ingot reads BPE and unigram tokenizers of the GPT-2, Llama, Mistral, Qwen2, SmolLM2 and T5 kinds",
             "{}: {} is not supported", at.where(), what);
}

}  // namespace ingot::text
