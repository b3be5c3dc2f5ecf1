// Operations on values: printing, comparison, iteration, attributes, arithmetic.
#include <algorithm>
#include <cmath>

#include "text/jinja/context.h"
#include "text/jinja/library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

// repr() of a string: nonprintable characters are escaped.
std::string repr_string(Context& context, const std::string& text) {
  context.charge(text.size());
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const uint32_t code = c.code_point;
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out += '\\';
      out += text[at];
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == invalid_byte || is_printable(code)) {
      out.append(text, at, c.size);
    } else {
      out += code <= 0xFF     ? fmt::format("\\x{:02x}", code)
             : code <= 0xFFFF ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
    at += c.size;
  }
  out += quote;
  return out;
}

// Appends a value as it is printed, strings by their repr() as inside a list.
void append_text(Context& context, const Value& value, int depth, std::string& out) {
  context.step();
  if (depth > max_value_depth) context.fail(ErrorKind::resource, "a value is too deeply nested to print");
  if (const auto* text = text_of(value)) {
    context.charge(text->size());
    out += repr_string(context, *text);
  } else if (const auto* list = std::get_if<List*>(&value)) {
    if ((*list)->kind == List::Kind::lazy)
      context.fail("the result of map, select, items or range cannot be printed: put | list after it");
    const bool tuple = (*list)->is_tuple();
    out += tuple ? "(" : "[";
    for (size_t i = 0; i < (*list)->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_text(context, (*list)->items[i], depth + 1, out);
    }
    if (tuple && (*list)->items.size() == 1) out += ",";
    out += tuple ? ")" : "]";
  } else if (const auto* dict = std::get_if<Dict*>(&value)) {
    if ((*dict)->role == Dict::Role::loop) {
      out += fmt::format("<LoopContext {}/{}>", std::get<int64_t>(*(*dict)->find("index")),
                         std::get<int64_t>(*(*dict)->find("length")));
      return;
    }
    const bool name_space = (*dict)->role == Dict::Role::name_space;
    out += name_space ? "<Namespace {" : "{";
    bool first = true;
    for (const auto& [key, item] : (*dict)->items) {
      if (!first) out += ", ";
      first = false;
      append_text(context, key, depth + 1, out);
      out += ": ";
      append_text(context, item, depth + 1, out);
    }
    out += name_space ? "}>" : "}";
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    out += float_text(*number);
  } else if (const auto* boolean = std::get_if<bool>(&value)) {
    out += *boolean ? "True" : "False";
  } else if (is<None>(value)) {
    out += "None";
  } else if (is<Undefined>(value)) {
    if (depth > 0) out += "Undefined";
  } else {
    context.fail("the function {} is printed, not called", std::get<const Callable*>(value)->name);
  }
}

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
  context.fail("{}", std::get<Undefined>(value).what->text());
}

// The text HTML-escaped as by MarkupSafe, unless it is marked safe.
TaintedString escaped(Context& context, const Text& text) {
  if (text.is_safe()) return *text;
  context.charge(5 * text->size());
  return map_runs(*text, [](std::string_view run) {
    std::string out;
    for (const char c : run) {
      switch (c) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '"': out += "&#34;"; break;
        case '\'': out += "&#39;"; break;
        default: out += c;
      }
    }
    return out;
  });
}

Value repeat(Context& context, const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  if (const auto* shared = std::get_if<Text>(&value)) {
    const TaintedString& text = **shared;
    const size_t max_memory = context.options().max_memory;
    if (!text.empty() && times > max_memory / text.memory()) context.charge(max_memory + 1);
    context.charge(text.memory() * times);
    TaintedString out;
    for (size_t i = 0; i < times && !text.empty(); ++i) out.append(text);
    return out;
  }
  const List* list = std::get<List*>(value);
  std::vector<Value> items;
  for (size_t i = 0; i < times && !list->items.empty(); ++i) {
    context.step(list->items.size());
    context.charge(list->items.size() * sizeof(Value));
    items.insert(items.end(), list->items.begin(), list->items.end());
  }
  return context.new_list(std::move(items), list->kind);
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
    if (b < 0 && a == 0) context.fail("division by zero");
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
  if (op == "**") {
    if (a == 0 && b < 0) context.fail("division by zero");
    if (a < 0 && std::floor(b) != b && std::isfinite(b)) {
      context.fail(ErrorKind::unsupported, "a complex number, {} ** {}, is not supported", a, b);
    }
    const double power = std::pow(a, b);
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) context.fail("a number is too large");
    return power;
  }
  if (b == 0) context.fail("division by zero");
  if (op == "/") return a / b;
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (op == "//") {
    if (quotient == 0) return std::copysign(0.0, a / b);
    const double below = std::floor(quotient);
    return quotient - below > 0.5 ? below + 1 : below;
  }
  return remainder == 0 ? std::copysign(0.0, b) : remainder;
}

}  // namespace

TaintedString to_text(Context& context, const Value& value) {
  if (const auto* text = std::get_if<Text>(&value)) {
    context.step();
    context.charge((*text)->memory());
    return **text;
  }
  std::string out;
  append_text(context, value, 0, out);
  return {std::move(out), is<List*>(value) || is<Dict*>(value) ? Origin::caller : Origin::author};
}

bool equal(Context& context, const Value& a, const Value& b, int depth) {
  context.step();
  if (depth > max_value_depth) context.fail(ErrorKind::resource, "a value is too deeply nested to compare");
  if (is_number(a) && is_number(b)) {
    if (is<double>(a) || is<double>(b)) return as_double(a) == as_double(b);
    return as_integer(a) == as_integer(b);
  }
  if (a.index() != b.index()) return false;
  if (const auto* text = text_of(a)) {
    if (text->size() != text_of(b)->size()) return false;
    context.scan(text->size());
    return *text == *text_of(b);
  }
  if (const auto* list = std::get_if<List*>(&a)) {
    const List* other = std::get<List*>(b);
    if ((*list)->is_tuple() != other->is_tuple() || (*list)->items.size() != other->items.size()) return false;
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
      const Value* match = context.find_key(*other, key);
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
    // Python returns false; sorting by such a key would have no consistent order.
    if (std::isnan(as_double(a)) || std::isnan(as_double(b))) context.fail("nan cannot be ordered");
    if (is<double>(a) || is<double>(b)) return as_double(a) < as_double(b);
    return as_integer(a) < as_integer(b);
  }
  if (is<Text>(a) && is<Text>(b)) {
    context.scan(std::min(text_of(a)->size(), text_of(b)->size()));
    return *text_of(a) < *text_of(b);
  }
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
  context.fail("{} and {} cannot be ordered", type_name(a), type_name(b));
}

bool contains(Context& context, const Value& container, const Value& item) {
  if (const auto* text = text_of(container)) {
    if (!is<Text>(item)) context.fail("'in' cannot look for a {} in a string", type_name(item));
    return find_text(*text, *text_of(item)) != std::string::npos;
  }
  if (const auto* dict = std::get_if<Dict*>(&container)) {
    return context.find_key(**dict, item) != nullptr;
  }
  const std::vector<Value> items = iterate(context, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& value) { return equal(context, value, item); });
}

std::vector<Value> iterate(Context& context, const Value& value) {
  std::vector<Value> items;
  if (const auto* list = std::get_if<List*>(&value)) {
    context.charge((*list)->items.size() * sizeof(Value));
    items = (*list)->items;
  } else if (const auto* dict = std::get_if<Dict*>(&value); dict != nullptr && (*dict)->role == Dict::Role::mapping) {
    for (const auto& [key, item] : (*dict)->items) items.push_back(key);
  } else if (const auto* shared = std::get_if<Text>(&value)) {
    const TaintedString& text = **shared;
    context.charge(text.size() * (sizeof(Value) + 2 * sizeof(TaintedString)));
    for (size_t at = 0, size = 0; at < text.size(); at += size) {
      size = decode_utf8(text.text(), at).size;
      items.emplace_back(text.part(at, at + size));
    }
  } else if (!is<Undefined>(value)) {
    context.fail("a {} is not iterable", type_name(value));
  }
  context.step(items.size());
  return items;
}

size_t length(Context& context, const Value& value) {
  if (const auto* list = std::get_if<List*>(&value)) return (*list)->items.size();
  if (const auto* dict = std::get_if<Dict*>(&value); dict != nullptr && (*dict)->role == Dict::Role::mapping) {
    return (*dict)->items.size();
  }
  if (const auto* text = text_of(value)) return count_characters(*text);
  if (is<Undefined>(value)) return 0;
  context.fail("a {} has no length", type_name(value));
}

Value get_attribute(Context& context, const Value& value, const std::string& name) {
  if (is<Undefined>(value)) fail_undefined(context, value);
  if (is_refused_method(value, name)) {
    context.fail(ErrorKind::unsupported, "the attribute {} of a {} is not supported", name, type_name(value));
  }
  if (has_method(value, name)) {
    return context.new_callable({.kind = Callable::Kind::method, .name = name, .macro = nullptr, .self = value});
  }
  if (const auto* dict = std::get_if<Dict*>(&value)) {
    if (const Value* item = context.find(**dict, name)) return *item;
  }
  // Jinja2's sandbox refuses such names.
  if (name.starts_with("__")) context.fail("access to the attribute {} is unsafe", name);
  return Undefined{author_text(fmt::format("a {} has no attribute '{}'", type_name(value), name))};
}

Value get_item(Context& context, const Value& value, const Value& key) {
  if (is<Undefined>(value)) fail_undefined(context, value);
  if (const auto* name = text_of(key)) {
    const auto* dict = std::get_if<Dict*>(&value);
    if (const Value* item = dict != nullptr ? context.find(**dict, *name) : nullptr) return *item;
    return get_attribute(context, value, *name);
  }
  if (const auto* dict = std::get_if<Dict*>(&value); dict != nullptr && is_key(key)) {
    if (const Value* item = context.find_key(**dict, key)) return *item;
  }
  if (is<int64_t>(key) || is<bool>(key)) {
    int64_t index = as_integer(key);
    if (is<Text>(value) || is<List*>(value)) {
      const auto size = static_cast<int64_t>(length(context, value));
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        if (is<List*>(value)) return std::get<List*>(value)->items[static_cast<size_t>(index)];
        const TaintedString& text = *std::get<Text>(value);
        size_t at = 0;
        for (; index > 0; --index) at += decode_utf8(text.text(), at).size;
        return text.part(at, at + decode_utf8(text.text(), at).size);
      }
    }
  }
  return Undefined{author_text(fmt::format("a {} has no item {}", type_name(value), to_text(context, key).text()))};
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
  const auto* text = text_of(left);
  const auto* list = std::get_if<List*>(&left);
  if (op == "+" && text != nullptr && is<Text>(right)) {
    if (std::get<Text>(left).is_safe() || std::get<Text>(right).is_safe()) {
      TaintedString both = escaped(context, std::get<Text>(left));
      both.append(escaped(context, std::get<Text>(right)));
      return Text(std::move(both)).marked_safe();
    }
    context.charge(std::get<Text>(left)->memory() + std::get<Text>(right)->memory());
    TaintedString both = *std::get<Text>(left);
    both.append(*std::get<Text>(right));
    return both;
  }
  if (op == "+" && list != nullptr && is<List*>(right) && (*list)->is_tuple() == std::get<List*>(right)->is_tuple()) {
    context.step((*list)->items.size());
    std::vector<Value> items = (*list)->items;
    const List* other = std::get<List*>(right);
    items.insert(items.end(), other->items.begin(), other->items.end());
    return context.new_list(std::move(items), other->kind);
  }
  if (op == "%" && text != nullptr) return format_percent(context, *std::get<Text>(left), right);
  const bool left_repeats = text != nullptr || list != nullptr;
  if (op == "*" && left_repeats && (is<int64_t>(right) || is<bool>(right))) {
    return repeat(context, left, as_integer(right));
  }
  if (op == "*" && (is<Text>(right) || is<List*>(right)) && (is<int64_t>(left) || is<bool>(left))) {
    return repeat(context, right, as_integer(left));
  }
  context.fail("unsupported operands: {} {} {}", type_name(left), op, type_name(right));
}

void check_namespace_name(Context& context, std::string_view name) {
  if (name.starts_with('_')) context.fail("a namespace cannot hold the attribute {}, which begins with _", name);
}

int64_t to_integer(Context& context, const Value& value, const char* what) {
  if (!is<int64_t>(value) && !is<bool>(value)) context.fail("{} is a {}, not an integer", what, type_name(value));
  return as_integer(value);
}

const TaintedString& to_marked(Context& context, const Value& value, const char* what) {
  if (!is<Text>(value)) context.fail("{} is a {}, not a string", what, type_name(value));
  return *std::get<Text>(value);
}

const std::string& to_string(Context& context, const Value& value, const char* what) {
  return to_marked(context, value, what).text();
}

}  // namespace ingot::text::jinja
