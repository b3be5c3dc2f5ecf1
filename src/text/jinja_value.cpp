#include "text/jinja_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

bool in_set(std::string_view character, const std::string* chars) {
  if (chars == nullptr) return is_python_space(decode_utf8(character, 0).code_point);
  const std::vector<std::string_view> set = split_characters(*chars);
  return std::find(set.begin(), set.end(), character) != set.end();
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::set(std::string_view key, Value value) {
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

bool truth(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer != 0;
  if (const auto* number = std::get_if<double>(&value)) return *number != 0;
  if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
  if (const auto* list = std::get_if<List*>(&value)) return !(*list)->items.empty();
  if (const auto* dict = std::get_if<Dict*>(&value)) {
    return (*dict)->role != Dict::Role::mapping || !(*dict)->items.empty();
  }
  return is<const Callable*>(value);
}

const char* type_name(const Value& value) {
  if (const auto* list = std::get_if<List*>(&value)) return (*list)->tuple ? "tuple" : "list";
  constexpr const char* names[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "dict", "function"};
  return names[value.index()];
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool is_python_space(uint32_t code_point) {
  return (char_class(code_point) & char_space) != 0 || (code_point >= 0x1C && code_point <= 0x1F);
}

std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right) {
  const std::vector<std::string_view> characters = split_characters(text);
  size_t begin = 0, end = characters.size();
  while (left && begin < end && in_set(characters[begin], chars)) ++begin;
  while (right && end > begin && in_set(characters[end - 1], chars)) --end;
  if (begin == end) return {};
  const char* first = characters[begin].data();
  const char* last = characters[end - 1].data() + characters[end - 1].size();
  return {first, static_cast<size_t>(last - first)};
}

}  // namespace ingot::text::jinja
