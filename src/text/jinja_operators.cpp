// Operators and the protocol of values: printing, comparing, iterating, attributes, arithmetic.
#include <algorithm>
#include <cmath>

#include "text/jinja_context.h"
#include "text/jinja_library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

std::string repr_string(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += quote;
  return out;
}

void append_text(Context& context, const Value& value, bool quote, int depth, std::string& out) {
  context.step();
  if (depth > max_value_depth) context.fail(ErrorKind::resource, "a value is too deeply nested to print");
  if (const auto* text = std::get_if<std::string>(&value)) {
    context.charge(text->size());
    out += quote ? repr_string(*text) : *text;
  } else if (const auto* list = std::get_if<List*>(&value)) {
    const bool tuple = (*list)->tuple;
    out += tuple ? "(" : "[";
    for (size_t i = 0; i < (*list)->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_text(context, (*list)->items[i], true, depth + 1, out);
    }
    if (tuple && (*list)->items.size() == 1) out += ",";
    out += tuple ? ")" : "]";
  } else if (const auto* dict = std::get_if<Dict*>(&value)) {
    out += "{";
    bool first = true;
    for (const auto& [key, item] : (*dict)->items) {
      if (!first) out += ", ";
      first = false;
      out += repr_string(key) + ": ";
      append_text(context, item, true, depth + 1, out);
    }
    out += "}";
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    out += float_text(*number);
  } else if (const auto* boolean = std::get_if<bool>(&value)) {
    out += *boolean ? "True" : "False";
  } else if (is<None>(value)) {
    out += "None";
  } else if (is<Undefined>(value)) {
    if (quote) out += "Undefined";
  } else {
    context.fail("the function {} is printed, not called", std::get<const Callable*>(value)->name);
  }
}

bool is_number(const Value& value) { return is<bool>(value) || is<int64_t>(value) || is<double>(value); }

double as_double(const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  return static_cast<double>(std::get<int64_t>(value));
}

int64_t as_integer(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  return std::get<int64_t>(value);
}

[[noreturn]] void fail_undefined(Context& context, const Value& value) {
  context.fail("{}", std::get<Undefined>(value).what);
}

Value repeat(Context& context, const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (!text->empty() && times > max_bytes / text->size()) context.charge(max_bytes + 1);
    context.charge(text->size() * times);
    std::string out;
    for (size_t i = 0; i < times && !text->empty(); ++i) out += *text;
    return out;
  }
  const List* list = std::get<List*>(value);
  std::vector<Value> items;
  for (size_t i = 0; i < times && !list->items.empty(); ++i) {
    context.step(list->items.size());
    items.insert(items.end(), list->items.begin(), list->items.end());
  }
  return context.new_list(std::move(items), list->tuple);
}

int64_t integer_power(Context& context, int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    context.step();
    if (__builtin_mul_overflow(result, base, &result)) context.fail(ErrorKind::resource, "an integer is too large");
    if (base == 1 || base == 0) break;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

Value integer_arithmetic(Context& context, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    return integer_power(context, a, b);
  } else {
    if (b == 0) context.fail("division by zero");
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {
      if (op == "%") return int64_t{0};
      overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      // Python rounds the quotient down and gives the remainder the sign of the divisor.
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == "//" ? a / b - (adjust ? 1 : 0) : remainder + (adjust ? b : 0);
    }
  }
  if (overflow) context.fail(ErrorKind::resource, "an integer is too large");
  return result;
}

Value float_arithmetic(Context& context, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) context.fail("division by zero");
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

}  // namespace

std::string to_text(Context& context, const Value& value) {
  std::string out;
  append_text(context, value, false, 0, out);
  return out;
}

bool equal(Context& context, const Value& a, const Value& b, int depth) {
  context.step();
  if (depth > max_value_depth) context.fail(ErrorKind::resource, "a value is too deeply nested to compare");
  if (is_number(a) && is_number(b)) {
    if (is<double>(a) || is<double>(b)) return as_double(a) == as_double(b);
    return as_integer(a) == as_integer(b);
  }
  if (a.index() != b.index()) return false;
  if (const auto* text = std::get_if<std::string>(&a)) return *text == std::get<std::string>(b);
  if (const auto* list = std::get_if<List*>(&a)) {
    const List* other = std::get<List*>(b);
    if ((*list)->tuple != other->tuple || (*list)->items.size() != other->items.size()) return false;
    for (size_t i = 0; i < other->items.size(); ++i) {
      if (!equal(context, (*list)->items[i], other->items[i], depth + 1)) return false;
    }
    return true;
  }
  if (const auto* dict = std::get_if<Dict*>(&a)) {
    const Dict* other = std::get<Dict*>(b);
    if (*dict == other) return true;
    if ((*dict)->role != Dict::Role::mapping || (*dict)->items.size() != other->items.size()) return false;
    for (const auto& [key, item] : (*dict)->items) {
      const Value* match = other->find(key);
      if (match == nullptr || !equal(context, item, *match, depth + 1)) return false;
    }
    return true;
  }
  if (const auto* callable = std::get_if<const Callable*>(&a)) return *callable == std::get<const Callable*>(b);
  return true;  // none, undefined
}

bool less(Context& context, const Value& a, const Value& b, int depth) {
  context.step();
  if (is<Undefined>(a)) fail_undefined(context, a);
  if (is<Undefined>(b)) fail_undefined(context, b);
  if (is_number(a) && is_number(b)) {
    // Python says false; a sort with such a key would have no order.
    if (std::isnan(as_double(a)) || std::isnan(as_double(b))) context.fail("nan has no order");
    if (is<double>(a) || is<double>(b)) return as_double(a) < as_double(b);
    return as_integer(a) < as_integer(b);
  }
  if (is<std::string>(a) && is<std::string>(b)) return std::get<std::string>(a) < std::get<std::string>(b);
  if (is<List*>(a) && is<List*>(b) && depth < max_value_depth) {
    const List* left = std::get<List*>(a);
    const List* right = std::get<List*>(b);
    for (size_t i = 0; i < std::min(left->items.size(), right->items.size()); ++i) {
      if (!equal(context, left->items[i], right->items[i], depth + 1)) {
        return less(context, left->items[i], right->items[i], depth + 1);
      }
    }
    return left->items.size() < right->items.size();
  }
  context.fail("{} and {} have no order", type_name(a), type_name(b));
}

bool contains(Context& context, const Value& container, const Value& item) {
  if (const auto* text = std::get_if<std::string>(&container)) {
    if (!is<std::string>(item)) context.fail("'in' looks for a {} in a string", type_name(item));
    return text->find(std::get<std::string>(item)) != std::string::npos;
  }
  if (const auto* dict = std::get_if<Dict*>(&container)) {
    return is<std::string>(item) && (*dict)->find(std::get<std::string>(item)) != nullptr;
  }
  const std::vector<Value> items = iterate(context, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& value) { return equal(context, value, item); });
}

std::vector<Value> iterate(Context& context, const Value& value) {
  std::vector<Value> items;
  if (const auto* list = std::get_if<List*>(&value)) {
    items = (*list)->items;
  } else if (const auto* dict = std::get_if<Dict*>(&value); dict != nullptr && (*dict)->role == Dict::Role::mapping) {
    for (const auto& [key, item] : (*dict)->items) items.emplace_back(key);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    for (const std::string_view character : split_characters(*text)) items.emplace_back(std::string(character));
  } else if (!is<Undefined>(value)) {
    context.fail("a {} cannot be gone through", type_name(value));
  }
  context.step(items.size());
  return items;
}

size_t length(Context& context, const Value& value) {
  if (const auto* list = std::get_if<List*>(&value)) return (*list)->items.size();
  if (const auto* dict = std::get_if<Dict*>(&value)) return (*dict)->items.size();
  if (const auto* text = std::get_if<std::string>(&value)) return split_characters(*text).size();
  if (is<Undefined>(value)) return 0;
  context.fail("a {} has no length", type_name(value));
}

Value get_attribute(Context& context, const Value& value, const std::string& name) {
  if (is<Undefined>(value)) fail_undefined(context, value);
  if (has_method(value, name)) {
    return context.new_callable({.kind = Callable::Kind::method, .name = name, .macro = nullptr, .self = value});
  }
  if (const auto* dict = std::get_if<Dict*>(&value)) {
    if (const Value* item = (*dict)->find(name)) return *item;
  }
  // Jinja2's sandbox hides such names.
  if (name.starts_with("__")) context.fail("access to the attribute {} is unsafe", name);
  return Undefined{fmt::format("a {} has no attribute '{}'", type_name(value), name)};
}

Value get_item(Context& context, const Value& value, const Value& key) {
  if (is<Undefined>(value)) fail_undefined(context, value);
  if (const auto* name = std::get_if<std::string>(&key)) {
    const auto* dict = std::get_if<Dict*>(&value);
    if (const Value* item = dict != nullptr ? (*dict)->find(*name) : nullptr) return *item;
    return get_attribute(context, value, *name);
  }
  if (is<int64_t>(key) || is<bool>(key)) {
    int64_t index = as_integer(key);
    std::vector<std::string_view> characters;
    size_t size = 0;
    if (const auto* text = std::get_if<std::string>(&value)) {
      characters = split_characters(*text);
      size = characters.size();
    } else if (const auto* list = std::get_if<List*>(&value)) {
      size = (*list)->items.size();
    }
    if (index < 0) index += static_cast<int64_t>(size);
    if (index >= 0 && static_cast<size_t>(index) < size) {
      const auto place = static_cast<size_t>(index);
      return characters.empty() ? std::get<List*>(value)->items[place] : Value(std::string(characters[place]));
    }
  }
  return Undefined{fmt::format("a {} has no item {}", type_name(value), to_text(context, key))};
}

Value binary(Context& context, std::string_view op, const Value& left, const Value& right) {
  if (is<Undefined>(left)) fail_undefined(context, left);
  if (is<Undefined>(right)) fail_undefined(context, right);
  if (is_number(left) && is_number(right)) {
    if (is<double>(left) || is<double>(right)) {
      return float_arithmetic(context, op, as_double(left), as_double(right));
    }
    return integer_arithmetic(context, op, as_integer(left), as_integer(right));
  }
  const auto* text = std::get_if<std::string>(&left);
  const auto* list = std::get_if<List*>(&left);
  if (op == "+" && text != nullptr && is<std::string>(right)) {
    context.charge(text->size() + std::get<std::string>(right).size());
    return *text + std::get<std::string>(right);
  }
  if (op == "+" && list != nullptr && is<List*>(right) && (*list)->tuple == std::get<List*>(right)->tuple) {
    std::vector<Value> items = (*list)->items;
    const List* other = std::get<List*>(right);
    items.insert(items.end(), other->items.begin(), other->items.end());
    return context.new_list(std::move(items), other->tuple);
  }
  if (op == "%" && text != nullptr) return format_percent(context, *text, right);
  const bool left_repeats = text != nullptr || list != nullptr;
  if (op == "*" && left_repeats && (is<int64_t>(right) || is<bool>(right))) {
    return repeat(context, left, as_integer(right));
  }
  if (op == "*" && (is<std::string>(right) || is<List*>(right)) && (is<int64_t>(left) || is<bool>(left))) {
    return repeat(context, right, as_integer(left));
  }
  context.fail("{} {} {} makes no sense", type_name(left), op, type_name(right));
}

int64_t to_integer(Context& context, const Value& value, const char* what) {
  if (!is<int64_t>(value) && !is<bool>(value)) context.fail("{} is a {}, not an integer", what, type_name(value));
  return as_integer(value);
}

const std::string& to_string(Context& context, const Value& value, const char* what) {
  if (!is<std::string>(value)) context.fail("{} is a {}, not a string", what, type_name(value));
  return std::get<std::string>(value);
}

}  // namespace ingot::text::jinja
