#include "text/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

constexpr uint32_t small_sigma = 0x3C3, final_sigma = 0x3C2;

// The number of bytes of the last character of `text`, which must not be empty.
size_t last_size(std::string_view text) {
  for (size_t size = 2; size <= std::min<size_t>(4, text.size()); ++size) {
    if (decode_utf8(text, text.size() - size).size == size) return size;
  }
  return 1;
}

double number_of(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

// `b` must not be a string.
bool same_key(const Value& a, const Value& b) {
  if (is<Text>(a) || is<None>(a) || is<None>(b)) return is<None>(a) && is<None>(b);
  if (is<int64_t>(a) && is<int64_t>(b)) return std::get<int64_t>(a) == std::get<int64_t>(b);
  return number_of(a) == number_of(b);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (const std::string* text = text_of(name); text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find_key(const Value& key) const {
  if (const std::string* text = text_of(key)) return find(*text);
  for (const auto& [name, value] : items) {
    if (same_key(name, key)) return &value;
  }
  return nullptr;
}

void Dict::set(std::string_view key, Value value, Origin of_key) {
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);
  } else {
    items.emplace_back(TaintedString(std::string(key), of_key), std::move(value));
  }
}

void Dict::set_key(const Value& key, Value value) {
  if (const Value* old = find_key(key)) {
    const_cast<Value&>(*old) = std::move(value);
  } else {
    items.emplace_back(key, std::move(value));
  }
}

bool is_key(const Value& value) {
  return is<Text>(value) || is<int64_t>(value) || is<bool>(value) || is<double>(value) || is<None>(value);
}

bool truth(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer != 0;
  if (const auto* number = std::get_if<double>(&value)) return *number != 0;
  if (const auto* text = text_of(value)) return !text->empty();
  if (const auto* list = std::get_if<List*>(&value)) return !(*list)->items.empty();
  if (const auto* dict = std::get_if<Dict*>(&value)) {
    return (*dict)->role != Dict::Role::mapping || !(*dict)->items.empty();
  }
  return is<const Callable*>(value);
}

const char* type_name(const Value& value) {
  if (const auto* list = std::get_if<List*>(&value)) return (*list)->is_tuple() ? "tuple" : "list";
  constexpr const char* names[] = {"NoneType", "Undefined", "bool", "int", "float", "str", "list", "dict", "function"};
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
  std::vector<std::string_view> set;
  if (chars != nullptr) set = split_characters(*chars);
  std::sort(set.begin(), set.end());
  const auto taken = [&](std::string_view character) {
    if (chars == nullptr) return is_python_space(decode_utf8(character, 0).code_point);
    return std::binary_search(set.begin(), set.end(), character);
  };
  while (left && !text.empty()) {
    const size_t size = decode_utf8(text, 0).size;
    if (!taken(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    const size_t size = last_size(text);
    if (!taken(text.substr(text.size() - size))) break;
    text.remove_suffix(size);
  }
  return text;
}

std::string python_lower(std::string_view text) {
  std::string lower = lower_case(text);
  if (text.find("\u03a3") == std::string_view::npos) return lower;
  std::string out;
  bool after_cased = false;
  const auto cased = [](uint32_t code_point) { return (char_class(code_point) & char_cased) != 0; };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view character = text.substr(at, c.size);
    at += c.size;
    if (c.code_point == 0x3A3) {
      const bool before_cased = at < text.size() && cased(decode_utf8(text, at).code_point);
      append_utf8(out, after_cased && !before_cased ? final_sigma : small_sigma);
    } else {
      out += lower_case(character);
    }
    after_cased = cased(c.code_point);
  }
  return out;
}

std::string python_capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::string_view first = text.substr(0, decode_utf8(text, 0).size);
  return title_case(first) + python_lower(text).substr(python_lower(first).size());
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).size) ++count;
  return count;
}

size_t find_text(std::string_view text, std::string_view part, size_t at) {
  if (at > text.size()) return std::string::npos;
  const void* found = memmem(text.data() + at, text.size() - at, part.data(), part.size());
  return found == nullptr ? std::string::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace ingot::text::jinja
