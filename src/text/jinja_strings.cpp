// Methods of strings, and what formats them.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/jinja_context.h"
#include "text/jinja_library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

struct Call {
  Context& context;
  const std::string& name;
  const std::string& text;
  const std::vector<Value>& values;  // as the table's parameters name them

  bool given(size_t i) const { return !is<Undefined>(values[i]); }
  const std::string& string(size_t i, const char* what) const { return to_string(context, values[i], what); }
};

// The parts of `text` between `separator`s, at most `limit` cuts (all when negative), each charged.
std::vector<std::string> cut(Context& context, std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = find_text(text, separator, at);
    if (found == std::string::npos) break;
    context.charge(found - at + sizeof(std::string));
    parts.emplace_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  context.charge(text.size() - at + sizeof(std::string));
  parts.emplace_back(text.substr(at));
  return parts;
}

std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

// As cut, with the cuts counted from the end.
std::vector<std::string> cut_from_end(Context& context, std::string_view text, std::string_view separator,
                                      int64_t limit) {
  std::vector<std::string> parts = cut(context, reversed(text), reversed(separator), limit);
  for (std::string& part : parts) part = reversed(part);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> cut_at_space(Context& context, std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  std::string_view rest = strip(text, nullptr, true, false);
  while (!rest.empty()) {
    size_t end = 0;
    while (end < rest.size() && !is_python_space(decode_utf8(rest, end).code_point)) end += decode_utf8(rest, end).size;
    // With a limit, the last part keeps the white space behind it, as in Python.
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) end = rest.size();
    context.charge(end + sizeof(std::string));
    parts.emplace_back(rest.substr(0, end));
    rest = strip(rest.substr(end), nullptr, true, false);
  }
  return parts;
}

Value to_list(Context& context, std::vector<std::string> parts, List::Kind kind = List::Kind::list) {
  return context.new_list({std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())}, kind);
}

Value split(const Call& call) {
  const bool from_right = call.name == "rsplit";
  const int64_t limit = call.given(1) ? to_integer(call.context, call.values[1], "maxsplit") : -1;
  if (!call.given(0) || is<None>(call.values[0])) {
    if (from_right && limit >= 0) call.context.fail(ErrorKind::unsupported, "rsplit at white space with a limit");
    return to_list(call.context, cut_at_space(call.context, call.text, limit));
  }
  const std::string& separator = call.string(0, "the separator of split");
  if (separator.empty()) call.context.fail("split by an empty string");
  return to_list(call.context, from_right ? cut_from_end(call.context, call.text, separator, limit)
                                          : cut(call.context, call.text, separator, limit));
}

Value partition(const Call& call) {
  const std::string& separator = call.string(0, "the separator of partition");
  if (separator.empty()) call.context.fail("partition by an empty string");
  const bool from_right = call.name == "rpartition";
  std::vector<std::string> parts =
      from_right ? cut_from_end(call.context, call.text, separator, 1) : cut(call.context, call.text, separator, 1);
  if (parts.size() == 2) return to_list(call.context, {parts[0], separator, parts[1]}, List::Kind::tuple);
  if (from_right) return to_list(call.context, {"", "", parts[0]}, List::Kind::tuple);
  return to_list(call.context, {parts[0], "", ""}, List::Kind::tuple);
}

Value split_lines(const Call& call) {
  const bool keep = call.given(0) && truth(call.values[0]);
  std::vector<std::string> lines;
  const std::string& text = call.text;
  for (size_t begin = 0, at = 0; begin < text.size();) {
    uint32_t code = 0;
    size_t end = at;  // of the line, without what ends it
    while (at < text.size()) {
      const Utf8Char c = decode_utf8(text, at);
      end = at;
      at += c.size;
      code = c.code_point;
      if ((code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
          code == 0x2029) {
        break;
      }
      end = at;
    }
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    call.context.charge(at - begin + sizeof(std::string));
    lines.push_back(text.substr(begin, (keep ? at : end) - begin));
    begin = at;
  }
  return to_list(call.context, std::move(lines));
}

Value has_affix(const Call& call) {
  const bool at_start = call.name == "startswith";
  const auto has = [&](const Value& affix) {
    const std::string& part = to_string(call.context, affix, "the argument of startswith or endswith");
    call.context.scan(part.size());
    return at_start ? call.text.starts_with(part) : call.text.ends_with(part);
  };
  const auto* choices = std::get_if<List*>(&call.values[0]);
  if (choices == nullptr || !(*choices)->is_tuple()) return has(call.values[0]);
  return std::any_of((*choices)->items.begin(), (*choices)->items.end(), has);
}

Value remove_affix(const Call& call) {
  const bool at_start = call.name == "removeprefix";
  const std::string& part = call.string(0, "what is removed");
  if (at_start && call.text.starts_with(part)) return call.text.substr(part.size());
  if (!at_start && call.text.ends_with(part)) return call.text.substr(0, call.text.size() - part.size());
  return call.text;
}

Value strip_chars(const Call& call) {
  const std::string* chars = text_of(call.values[0]);
  if (chars == nullptr && call.given(0) && !is<None>(call.values[0])) call.string(0, "the argument of strip");
  if (chars != nullptr) call.context.charge(chars->size() * sizeof(std::string_view));
  return std::string(strip(call.text, chars, call.name != "rstrip", call.name != "lstrip"));
}

Value join(const Call& call) {
  std::string out;
  const std::vector<Value> items = iterate(call.context, call.values[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& item = to_string(call.context, items[i], "an item of join");
    call.context.charge(item.size() + call.text.size());
    if (i > 0) out += call.text;
    out += item;
  }
  return out;
}

// find, rfind, index and rindex: places are counted in characters.
Value find(const Call& call) {
  const std::string& part = call.string(0, "what is looked for");
  size_t found = std::string::npos;
  if (call.name[0] == 'r') {
    const size_t from_end = find_text(reversed(call.text), reversed(part));
    if (from_end != std::string::npos) found = call.text.size() - from_end - part.size();
  } else {
    found = find_text(call.text, part);
  }
  if (found != std::string::npos) {
    return static_cast<int64_t>(count_characters(std::string_view(call.text).substr(0, found)));
  }
  if (call.name.ends_with("index")) call.context.fail("str.{} finds nothing", call.name);
  return int64_t{-1};
}

Value count(const Call& call) {
  const std::string& part = call.string(0, "what is counted");
  if (part.empty()) return static_cast<int64_t>(count_characters(call.text) + 1);
  int64_t number = 0;
  for (size_t at = find_text(call.text, part); at != std::string::npos;
       at = find_text(call.text, part, at + part.size()))
    ++number;
  return number;
}

Value replace(const Call& call) {
  const Value limit = call.given(2) ? call.values[2] : Value(None{});
  call.string(0, "what replace looks for");
  call.string(1, "what replace puts in");
  return apply_filter(call.context, "replace", call.text, {{call.values[0], call.values[1], limit}, {}});
}

std::string title(const std::string& text) {
  std::string out;
  const auto is_cased = [&](size_t at) { return (char_class(decode_utf8(text, at).code_point) & char_cased) != 0; };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool cased = is_cased(at);
    while (at < text.size() && is_cased(at) == cased) at += decode_utf8(text, at).size;
    const std::string_view run = std::string_view(text).substr(begin, at - begin);
    out += cased ? python_capitalize(run) : lower_case(run);
  }
  return out;
}

// Whether there are characters, and all are of the kind.
template <class Is>
bool all_characters(const Call& call, Is is_kind) {
  for (size_t at = 0; at < call.text.size();) {
    const Utf8Char c = decode_utf8(call.text, at);
    if (!is_kind(c.code_point)) return false;
    at += c.size;
  }
  return !call.text.empty();
}

Value is_digit(const Call& call) {
  return all_characters(call, [&](uint32_t c) {
    if (c >= 0x80 && (char_class(c) & char_number) != 0) {
      call.context.fail(ErrorKind::unsupported, "str.isdigit of a number that is not ASCII");
    }
    return c >= '0' && c <= '9';
  });
}

// ljust, rjust, center and zfill.
Value pad(const Call& call) {
  const bool zeros = call.name == "zfill";
  const int64_t width = to_integer(call.context, call.values[0], "the width");
  std::string fill = zeros ? "0" : " ";
  if (!zeros && call.given(1)) fill = call.string(1, "the character to fill with");
  if (count_characters(fill) != 1) call.context.fail("str.{} fills with one character", call.name);
  const auto size = static_cast<int64_t>(count_characters(call.text));
  if (width <= size) return call.text;
  const int64_t missing = width - size;
  const size_t most = call.context.options().max_memory;
  call.context.charge(std::min(static_cast<size_t>(missing), most) * fill.size());
  const auto filling = [&](int64_t times) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += fill;
    return out;
  };
  if (call.name == "ljust") return call.text + filling(missing);
  if (call.name == "rjust") return filling(missing) + call.text;
  if (call.name == "center") {
    const int64_t left = missing / 2 + (missing & width & 1);
    return filling(left) + call.text + filling(missing - left);
  }
  const size_t sign = call.text.starts_with('-') || call.text.starts_with('+') ? 1 : 0;
  return call.text.substr(0, sign) + filling(missing) + call.text.substr(sign);
}

struct Entry {
  std::vector<std::string_view> parameters;
  size_t num_required;
  Value (*run)(const Call&);
};

const std::unordered_map<std::string_view, Entry>& methods() {
  static const std::unordered_map<std::string_view, Entry> table = {
      {"capitalize", {{}, 0, [](const Call& c) { return apply_filter(c.context, "capitalize", c.text, {}); }}},
      {"center", {{"width", "fillchar"}, 1, pad}},
      {"count", {{"sub"}, 1, count}},
      {"endswith", {{"suffix"}, 1, has_affix}},
      {"find", {{"sub"}, 1, find}},
      {"index", {{"sub"}, 1, find}},
      {"isalnum",
       {{},
        0,
        [](const Call& c) -> Value {
          return all_characters(c, [](uint32_t x) { return (char_class(x) & (char_letter | char_number)) != 0; });
        }}},
      {"isalpha",
       {{},
        0,
        [](const Call& c) -> Value {
          return all_characters(c, [](uint32_t x) { return (char_class(x) & char_letter) != 0; });
        }}},
      {"isdigit", {{}, 0, is_digit}},
      {"islower", {{}, 0, [](const Call& c) -> Value { return apply_test(c.context, "lower", c.text, {}); }}},
      {"isspace", {{}, 0, [](const Call& c) -> Value { return all_characters(c, is_python_space); }}},
      {"isupper", {{}, 0, [](const Call& c) -> Value { return apply_test(c.context, "upper", c.text, {}); }}},
      {"join", {{"iterable"}, 1, join}},
      {"ljust", {{"width", "fillchar"}, 1, pad}},
      {"lower", {{}, 0, [](const Call& c) -> Value { return python_lower(c.text); }}},
      {"lstrip", {{"chars"}, 0, strip_chars}},
      {"partition", {{"sep"}, 1, partition}},
      {"removeprefix", {{"prefix"}, 1, remove_affix}},
      {"removesuffix", {{"suffix"}, 1, remove_affix}},
      {"replace", {{"old", "new", "count"}, 2, replace}},
      {"rfind", {{"sub"}, 1, find}},
      {"rindex", {{"sub"}, 1, find}},
      {"rjust", {{"width", "fillchar"}, 1, pad}},
      {"rpartition", {{"sep"}, 1, partition}},
      {"rsplit", {{"sep", "maxsplit"}, 0, split}},
      {"rstrip", {{"chars"}, 0, strip_chars}},
      {"split", {{"sep", "maxsplit"}, 0, split}},
      {"splitlines", {{"keepends"}, 0, split_lines}},
      {"startswith", {{"prefix"}, 1, has_affix}},
      {"strip", {{"chars"}, 0, strip_chars}},
      {"title", {{}, 0, [](const Call& c) -> Value { return title(c.text); }}},
      {"upper", {{}, 0, [](const Call& c) -> Value { return upper_case(c.text); }}},
      {"zfill", {{"width"}, 1, pad}},
  };
  return table;
}

}  // namespace

bool has_string_method(std::string_view name) { return name == "format" || methods().contains(name); }

Value call_string_method(Context& context, const std::string& text, const std::string& name,
                         const Arguments& arguments) {
  if (name == "format") return format_braces(context, text, arguments);
  const Entry& entry = methods().at(name);
  context.scan(text.size());
  return entry.run(
      {context, name, text, jinja::bind(context, "str." + name, arguments, entry.parameters, entry.num_required)});
}

std::string format_braces(Context& context, const std::string& format, const Arguments& arguments) {
  std::string out;
  size_t next = 0;  // of the fields without a name; a number in a field makes it npos
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (c == '}' || end == std::string::npos) context.fail("a format has a single '{}'", c);
    const std::string field = format.substr(i + 1, end - i - 1);
    if (field.find_first_of(".[!:{") != std::string::npos) {
      context.fail(ErrorKind::unsupported,
                   "the format field {{{}}} is not supported: it may be empty, a number or a name", field);
    }
    const Value* value = nullptr;
    size_t place = 0;
    const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), place);
    const bool numbered = error == std::errc() && stop == field.data() + field.size();
    if (field.empty() || numbered) {
      if (field.empty() ? next == std::string::npos : next != 0 && next != std::string::npos) {
        context.fail("a format mixes fields with and without numbers");
      }
      if (field.empty()) place = next++;
      if (numbered) next = std::string::npos;
      if (place < arguments.positional.size()) value = &arguments.positional[place];
    } else {
      for (const auto& [name, argument] : arguments.named) {
        if (name == field) value = &argument;
      }
    }
    if (value == nullptr) context.fail("a format has no value for the field {{{}}}", field);
    out += to_text(context, *value);
    i = end;
  }
  return out;
}

std::string format_percent(Context& context, const std::string& format, const Value& arguments) {
  std::vector<Value> values = {arguments};
  if (is<List*>(arguments) && std::get<List*>(arguments)->is_tuple()) values = std::get<List*>(arguments)->items;
  size_t next = 0;
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const char kind = i + 1 < format.size() ? format[++i] : '\0';
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (kind != 's' && kind != 'd') context.fail(ErrorKind::unsupported, "formatting with %{}", kind);
    if (next >= values.size()) context.fail("a format has more places than values");
    const Value& value = values[next++];
    const std::string text = kind == 's' ? to_text(context, value) : std::to_string(to_integer(context, value, "%d"));
    context.charge(text.size());
    out += text;
  }
  if (next < values.size()) context.fail("a format has fewer places than values");
  return out;
}

}  // namespace ingot::text::jinja
