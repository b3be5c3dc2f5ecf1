// Conversion between JSON and template values.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja/context.h"
#include "text/jinja/library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

void append_json_string(Context& context, const std::string& text, bool ensure_ascii, std::string& out) {
  context.charge(text.size());
  out += '"';
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (ensure_ascii && static_cast<unsigned char>(c) >= 0x80) {
      const Utf8Char character = decode_utf8(text, at);
      const uint32_t code = character.code_point;
      if (code == invalid_byte)
        context.fail(ErrorKind::unsupported, "tojson with ensure_ascii of invalid UTF-8 is not supported");
      at += character.size - 1;
      out += code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
      continue;
    }
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  void write(const Value& value, int depth, std::string& out) {
    context_.step();
    if (depth > max_value_depth) context_.fail(ErrorKind::resource, "a value is too deeply nested for JSON");
    if (const auto* text = text_of(value)) {
      append_json_string(context_, *text, style_.ensure_ascii, out);
    } else if (const auto* list = std::get_if<List*>(&value)) {
      if ((*list)->kind == List::Kind::lazy)
        context_.fail("the result of map, select, items or range has no JSON form: put | list before tojson");
      write_items((*list)->items.size(), "[]", depth, out, [&](size_t i) { write((*list)->items[i], depth + 1, out); });
    } else if (const auto* dict = std::get_if<Dict*>(&value); dict != nullptr && (*dict)->role == Dict::Role::mapping) {
      write_dict(**dict, depth, out);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      out += std::to_string(*integer);
    } else if (const auto* boolean = std::get_if<bool>(&value)) {
      out += *boolean ? "true" : "false";
    } else if (const auto* number = std::get_if<double>(&value)) {
      const std::string text_form = float_text(*number);
      out += text_form == "inf"    ? "Infinity"
             : text_form == "-inf" ? "-Infinity"
             : text_form == "nan"  ? "NaN"
                                   : text_form;
    } else if (is<None>(value)) {
      out += "null";
    } else {
      context_.fail("a {} has no JSON form", type_name(value));
    }
  }

 private:
  void write_dict(const Dict& dict, int depth, std::string& out) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.items) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(),
                [&](const auto* a, const auto* b) { return less(context_, a->first, b->first); });
    }
    write_items(entries.size(), "{}", depth, out, [&](size_t i) {
      if (const std::string* key = text_of(entries[i]->first)) {
        append_json_string(context_, *key, style_.ensure_ascii, out);
      } else {
        out += '"';
        write(entries[i]->first, depth + 1, out);
        out += '"';
      }
      out += style_.key_separator;
      write(entries[i]->second, depth + 1, out);
    });
  }

  template <class WriteItem>
  void write_items(size_t count, const char* brackets, int depth, std::string& out, WriteItem write_item) {
    out += brackets[0];
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1, out);
      write_item(i);
    }
    if (count > 0) new_line(depth, out);
    out += brackets[1];
  }

  void new_line(int depth, std::string& out) {
    if (style_.indent < 0) return;
    out += '\n';
    context_.charge(static_cast<size_t>(depth) * static_cast<size_t>(style_.indent));
    out.append(static_cast<size_t>(depth) * static_cast<size_t>(style_.indent), ' ');
  }

  Context& context_;
  const JsonStyle& style_;
};

}  // namespace

Value from_json(Context& context, const nlohmann::ordered_json& json, Origin origin, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > max_value_depth) context.fail(ErrorKind::resource, "a variable is too deeply nested");
  switch (json.type()) {
    case Type::boolean: return json.get<bool>();
    case Type::number_integer: return json.get<int64_t>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) {
        context.fail(ErrorKind::unsupported, "a variable holds {}, which does not fit a signed 64-bit integer",
                     json.get<uint64_t>());
      }
      return json.get<int64_t>();
    case Type::number_float: return json.get<double>();
    case Type::string: return TaintedString(json.get<std::string>(), origin);
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(context, item, origin, depth + 1));
      return context.new_list(std::move(items));
    }
    case Type::object: {
      Dict* dict = context.new_dict();
      for (const auto& [key, item] : json.items())
        dict->items.emplace_back(TaintedString(key, origin), from_json(context, item, origin, depth + 1));
      return dict;
    }
    case Type::null:
    case Type::binary:
    case Type::discarded: break;
  }
  return None{};
}

TaintedString to_json(Context& context, const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(context, style).write(value, 0, out);
  return {std::move(out), Origin::caller};
}

}  // namespace ingot::text::jinja
