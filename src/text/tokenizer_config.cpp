#include "text/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace ingot::text {
namespace {

using nlohmann::json;

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string string_of(const json& value, std::string_view name, std::string_view key) {
  if (!value.is_string()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not a string", name, key);
  return value.get<std::string>();
}

// A token is given as its content, or as an object with it.
std::optional<std::string> token(const json& config, const char* key, std::string_view name) {
  const json* value = member(config, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) value = member(*value, "content");
  return string_of(value == nullptr ? json() : *value, name, key);
}

// Reads a list of tokens, or an object with tokens by name.
void append_tokens(const json& config, const char* key, std::string_view name, std::vector<std::string>& out) {
  const json* value = member(config, key);
  if (value == nullptr) return;
  if (!value->is_array() && !value->is_object()) {
    throw_error(ErrorKind::corrupt, "{}: \"{}\" is not a list of tokens", name, key);
  }
  for (const json& item : *value) {
    const json* content = item.is_object() ? member(item, "content") : &item;
    out.push_back(string_of(content == nullptr ? json() : *content, name, key));
  }
}

std::optional<bool> flag(const json& config, const char* key, std::string_view name) {
  const json* value = member(config, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not true or false", name, key);
  return value->get<bool>();
}

std::optional<std::string> chat_template(const json& config, std::string_view name, std::string_view template_name) {
  const json* value = member(config, "chat_template");
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return string_of(*value, name, "chat_template");
  std::string names;
  for (const json& entry : *value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) {
      throw_error(ErrorKind::corrupt, "{}: an entry of \"chat_template\" has no name or no template", name);
    }
    const std::string entry_name = string_of(entry["name"], name, "chat_template.name");
    if (entry_name == template_name) return string_of(entry["template"], name, "chat_template.template");
    names += (names.empty() ? "" : ", ") + entry_name;
  }
  throw_hint(ErrorKind::not_found, "templates in the file: " + names, "{}: there is no chat template \"{}\"", name,
             template_name);
}

// {"32000": {"content": "<|im_end|>", "special": true, ...}, ...}
std::vector<AddedToken> added_tokens(const json& config, std::string_view name) {
  std::vector<AddedToken> tokens;
  const json* list = member(config, "added_tokens_decoder");
  if (list == nullptr) return tokens;
  const auto bad = [&](const std::string& id) {
    throw_error(ErrorKind::corrupt, "{}: added_tokens_decoder: \"{}\" is not the id of a token", name, id);
  };
  if (!list->is_object()) bad("");
  for (const auto& [id, entry] : list->items()) {
    const bool is_number = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !entry.is_object() || !entry.contains("content")) bad(id);
    AddedToken token;
    token.id = std::stoi(id);
    token.content = string_of(entry["content"], name, "content");
    token.special = flag(entry, "special", name).value_or(false);
    token.single_word = flag(entry, "single_word", name).value_or(false);
    token.lstrip = flag(entry, "lstrip", name).value_or(false);
    token.rstrip = flag(entry, "rstrip", name).value_or(false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

TokenizerConfig parse_tokenizer_config(std::string_view text, std::string_view name, std::string_view template_name) {
  json config;
  try {
    config = parse_lenient_json(text);
  } catch (const Error& error) {
    throw_error(error.kind(), "{} {}", name, error.message());
  }
  if (!config.is_object()) throw_error(ErrorKind::corrupt, "{} is not a JSON object", name);
  TokenizerConfig result;
  result.special.bos = token(config, "bos_token", name);
  result.special.eos = token(config, "eos_token", name);
  result.special.unk = token(config, "unk_token", name);
  result.special.pad = token(config, "pad_token", name);
  for (const char* key : {"cls_token", "sep_token", "mask_token"}) {
    if (auto content = token(config, key, name)) result.special.additional.push_back(std::move(*content));
  }
  append_tokens(config, "additional_special_tokens", name, result.special.additional);
  append_tokens(config, "extra_special_tokens", name, result.special.additional);
  result.special.add_bos = flag(config, "add_bos_token", name);
  result.special.add_eos = flag(config, "add_eos_token", name);
  result.added = added_tokens(config, name);
  result.legacy = flag(config, "legacy", name).value_or(true);
  result.chat_template = chat_template(config, name, template_name);
  return result;
}

}  // namespace ingot::text
