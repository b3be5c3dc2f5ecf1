#include "server/tool_calls.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view open_tag = "<tool_call>";
constexpr std::string_view close_tag = tool_close_tag;

// Removes white space and then `token` from the front of `text`; if `text` ends early, a prefix of the token suffices.
// False when something else is there.
bool take(std::string_view& text, std::string_view token) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const size_t there = std::min(text.size(), token.size());
  if (!token.starts_with(text.substr(0, there))) return false;
  text.remove_prefix(there);
  return true;
}

// Removes white space and then a JSON string with the value `word` from the front of `text`; if `text` ends early, a
// prefix suffices. Characters may be escaped.
bool take_string(std::string_view& text, std::string_view word) {
  if (!take(text, "\"") || text.empty()) return text.empty();
  size_t end = 0;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  const bool whole = end < text.size();
  std::string_view inner = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  for (;;) {
    const Json value = try_parse_json(fmt::format("\"{}\"", inner));
    if (value.is_string()) return whole ? value == word : word.starts_with(value.get_ref<const std::string&>());
    if (whole || inner.empty()) return false;
    inner.remove_suffix(1);  // part of an escape or of a character that was cut
  }
}

// The index of the closing brace of an object whose opening brace precedes `text`; npos if it is not closed.
size_t end_of_object(std::string_view text) {
  bool quoted = false;
  int64_t open = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;
    if (!quoted && text[i] == '{') ++open;
    if (!quoted && text[i] == '}' && --open == 0) return i;
  }
  return std::string_view::npos;
}

}  // namespace

std::string ToolReader::push(std::string_view piece) {
  if (form_ == ToolForm::none || text_) return std::string(piece);
  held_ += piece;
  if (form_ == ToolForm::forced || holding_) return {};
  if (form_ == ToolForm::whole) {
    const std::string_view text = trim(held_);
    if (text.empty()) return {};
    holding_ = text.front() == '{' || text.front() == '[';
    if (holding_) return {};
    text_ = true;
    return std::move(held_);
  }
  const size_t tag = held_.find(open_tag);
  holding_ = tag != std::string::npos;
  size_t free = tag;
  if (!holding_) {
    size_t keep = std::min(open_tag.size() - 1, held_.size());
    while (!held_.ends_with(open_tag.substr(0, keep))) --keep;
    free = held_.size() - keep;
  }
  std::string out = held_.substr(0, free);
  held_.erase(0, free);
  return out;
}

std::string ToolReader::finish() {
  bool are_calls = false;
  switch (form_) {
    case ToolForm::none: break;
    case ToolForm::forced: are_calls = read_forced(held_); break;
    case ToolForm::tagged: are_calls = holding_ && read_tagged(held_); break;
    case ToolForm::whole: are_calls = read(held_); break;
  }
  if (are_calls) {
    if (calls_.size() > max_) calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(max_), calls_.end());
    return {};
  }
  calls_.clear();
  return std::move(held_);
}

bool ToolReader::read_tagged(std::string_view text) {
  while (!(text = trim(text)).empty()) {
    if (!text.starts_with(open_tag)) return false;
    text.remove_prefix(open_tag.size());
    const size_t end = text.find(close_tag);  // the last one may be missing: an EOS token can replace it
    if (!read(text.substr(0, end))) return false;
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + close_tag.size());
  }
  return !calls_.empty();
}

bool ToolReader::read(std::string_view json) {
  Json value;
  try {
    value = parse_json(trim(json));
  } catch (const Error&) {
    return false;
  }
  if (value.is_object()) value = Json::array({std::move(value)});
  if (!value.is_array() || value.empty()) return false;
  for (const Json& call : value) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    const std::string name = call["name"].get<std::string>();
    if (std::find(tools_.begin(), tools_.end(), name) == tools_.end()) return false;
    const char* key = call.contains("arguments") ? "arguments" : "parameters";
    if (!call.contains(key) || !call[key].is_object()) return false;
    calls_.push_back({name, call[key].dump()});
  }
  return true;
}

// The arguments stay as written: they match the tool's schema, but may exceed the limits of parse_json.
bool ToolReader::read_forced(std::string_view text) {
  for (const std::string& name : tools_) {
    std::string_view rest = text;
    const bool fits = take(rest, "{") && take_string(rest, "name") && take(rest, ":") && take_string(rest, name) &&
                      take(rest, ",") && take_string(rest, "arguments") && take(rest, ":");
    if (!fits) continue;
    if (!calls_.empty() && calls_.front().name != name) {
      cut_ = true;  // the name fits several tools
      return false;
    }
    const size_t end = end_of_object(rest);
    cut_ = end == std::string_view::npos;
    calls_ = {{name, std::string(trim(rest.substr(0, end)))}};
  }
  return !calls_.empty();
}

std::string call_schema(const std::vector<std::pair<std::string, std::string>>& tools) {
  Json any = Json::array();
  for (const auto& [name, parameters] : tools) {
    // The arguments are a schema resource of their own: references such as "#/$defs/X" are relative to it and not to
    // the schema around it.
    Json arguments = parse_lenient_ordered_json(parameters);
    // Draft-04 calls the keyword "id".
    const bool old = arguments.is_object() && arguments.contains("$schema") &&
                     Json(arguments["$schema"]).dump().find("/draft-04/") != std::string::npos;
    const char* id = old ? "id" : "$id";
    if (arguments.is_object() && !arguments.contains(id)) arguments[id] = fmt::format("urn:tool:{}", any.size());
    any.push_back({{"type", "object"},
                   {"properties", {{"name", {{"const", name}}}, {"arguments", std::move(arguments)}}},
                   {"required", {"name", "arguments"}},
                   {"additionalProperties", false}});
  }
  return any.size() == 1 ? any.front().dump() : Json{{"anyOf", any}}.dump();
}

}  // namespace ingot::server
