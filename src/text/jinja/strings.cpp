// String methods and string formatting.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/jinja/context.h"
#include "text/jinja/library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

struct Call {
  Context& context;
  const std::string& name;
  const TaintedString& self;
  const std::string& text;           // of self
  const std::vector<Value>& values;  // bound to the parameters of methods()

  bool given(size_t i) const { return !is<Undefined>(values[i]); }
  const std::string& string(size_t i, const char* what) const { return to_string(context, values[i], what); }
  const TaintedString& marked(size_t i, const char* what) const { return to_marked(context, values[i], what); }
  Value part(const ByteRange& range) const { return self.part(range.first, range.second); }
};

// The parts of `text` between occurrences of `separator`, with at most `limit` splits (negative: all); each part is
// charged.
ByteRanges cut(Context& context, std::string_view text, std::string_view separator, int64_t limit) {
  ByteRanges parts;
  size_t at = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = find_text(text, separator, at);
    if (found == std::string::npos) break;
    context.charge(found - at + sizeof(TaintedString));
    parts.emplace_back(at, found);
    at = found + separator.size();
  }
  context.charge(text.size() - at + sizeof(TaintedString));
  parts.emplace_back(at, text.size());
  return parts;
}

std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

// As cut, starting from the end.
ByteRanges cut_from_end(Context& context, std::string_view text, std::string_view separator, int64_t limit) {
  ByteRanges parts = cut(context, reversed(text), reversed(separator), limit);
  for (ByteRange& part : parts) part = {text.size() - part.second, text.size() - part.first};
  std::reverse(parts.begin(), parts.end());
  return parts;
}

ByteRanges cut_at_space(Context& context, std::string_view text, int64_t limit) {
  ByteRanges parts;
  std::string_view rest = strip(text, nullptr, true, false);
  while (!rest.empty()) {
    size_t end = 0;
    while (end < rest.size() && !is_python_space(decode_utf8(rest, end).code_point)) end += decode_utf8(rest, end).size;
    // With a limit, the last part keeps its trailing white space, as in Python.
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) end = rest.size();
    context.charge(end + sizeof(TaintedString));
    const auto begin = static_cast<size_t>(rest.data() - text.data());
    parts.emplace_back(begin, begin + end);
    rest = strip(rest.substr(end), nullptr, true, false);
  }
  return parts;
}

Value to_list(const Call& call, const ByteRanges& parts) {
  std::vector<Value> items;
  for (const ByteRange& part : parts) items.push_back(call.part(part));
  return call.context.new_list(std::move(items));
}

Value split(const Call& call) {
  const bool from_right = call.name == "rsplit";
  const int64_t limit = call.given(1) ? to_integer(call.context, call.values[1], "maxsplit") : -1;
  if (!call.given(0) || is<None>(call.values[0])) {
    if (from_right && limit >= 0)
      call.context.fail(ErrorKind::unsupported, "rsplit at white space with a limit is not supported");
    return to_list(call, cut_at_space(call.context, call.text, limit));
  }
  const std::string& separator = call.string(0, "the separator of split");
  if (separator.empty()) call.context.fail("split by an empty string");
  return to_list(call, from_right ? cut_from_end(call.context, call.text, separator, limit)
                                  : cut(call.context, call.text, separator, limit));
}

Value partition(const Call& call) {
  const std::string& separator = call.string(0, "the separator of partition");
  if (separator.empty()) call.context.fail("partition by an empty string");
  const bool from_right = call.name == "rpartition";
  const ByteRanges parts =
      from_right ? cut_from_end(call.context, call.text, separator, 1) : cut(call.context, call.text, separator, 1);
  const Value none = Text(""), first = call.part(parts[0]);
  std::vector<Value> items = from_right ? std::vector{none, none, first} : std::vector{first, none, none};
  if (parts.size() == 2) items = {first, call.part({parts[0].second, parts[1].first}), call.part(parts[1])};
  return call.context.new_list(std::move(items), List::Kind::tuple);
}

Value split_lines(const Call& call) {
  const bool keep = call.given(0) && truth(call.values[0]);
  ByteRanges lines;
  const std::string& text = call.text;
  for (size_t begin = 0, at = 0; begin < text.size();) {
    uint32_t code = 0;
    size_t end = at;  // end of the line, without its line break
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
    call.context.charge(at - begin + sizeof(TaintedString));
    lines.emplace_back(begin, keep ? at : end);
    begin = at;
  }
  return to_list(call, lines);
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
  const std::string& part = call.string(0, "the text to remove");
  const size_t size = call.text.size();
  if (at_start && call.text.starts_with(part)) return call.part({part.size(), size});
  if (!at_start && call.text.ends_with(part)) return call.part({0, size - part.size()});
  return call.self;
}

Value strip_chars(const Call& call) {
  const std::string* chars = text_of(call.values[0]);
  if (chars == nullptr && call.given(0) && !is<None>(call.values[0])) call.string(0, "the argument of strip");
  if (chars != nullptr) call.context.charge(chars->size() * sizeof(std::string_view));
  const std::string_view stripped = strip(call.text, chars, call.name != "rstrip", call.name != "lstrip");
  const auto begin = static_cast<size_t>(stripped.data() - call.text.data());
  return call.part({begin, begin + stripped.size()});
}

Value join(const Call& call) {
  TaintedString out;
  const std::vector<Value> items = iterate(call.context, call.values[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    const TaintedString& item = to_marked(call.context, items[i], "an item of join");
    call.context.charge(item.memory() + call.self.memory());
    if (i > 0) out.append(call.self);
    out.append(item);
  }
  return out;
}

// find, rfind, index and rindex: positions are in characters.
Value find(const Call& call) {
  const std::string& part = call.string(0, "the text to find");
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
  if (call.name.ends_with("index")) call.context.fail("str.{}: the text is not found", call.name);
  return int64_t{-1};
}

Value count(const Call& call) {
  const std::string& part = call.string(0, "the text to count");
  if (part.empty()) return static_cast<int64_t>(count_characters(call.text) + 1);
  int64_t number = 0;
  for (size_t at = find_text(call.text, part); at != std::string::npos;
       at = find_text(call.text, part, at + part.size()))
    ++number;
  return number;
}

Value replace(const Call& call) {
  const Value limit = call.given(2) ? call.values[2] : Value(None{});
  call.string(0, "the text to replace");
  call.string(1, "the replacement");
  return apply_filter(call.context, "replace", call.self, {{call.values[0], call.values[1], limit}, {}});
}

std::string title(std::string_view text) {
  std::string out;
  const auto is_cased = [&](size_t at) { return (char_class(decode_utf8(text, at).code_point) & char_cased) != 0; };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool cased = is_cased(at);
    while (at < text.size() && is_cased(at) == cased) at += decode_utf8(text, at).size;
    const std::string_view run = text.substr(begin, at - begin);
    out += cased ? python_capitalize(run) : lower_case(run);
  }
  return out;
}

// Whether the text is not empty and all its characters satisfy `is_kind`.
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
      call.context.fail(ErrorKind::unsupported, "str.isdigit of a number that is not ASCII is not supported");
    }
    return c >= '0' && c <= '9';
  });
}

// ljust, rjust, center and zfill.
Value pad(const Call& call) {
  const bool zeros = call.name == "zfill";
  const int64_t width = to_integer(call.context, call.values[0], "the width");
  TaintedString fill(zeros ? "0" : " ", Origin::author);
  if (!zeros && call.given(1)) fill = call.marked(1, "the character to fill with");
  if (count_characters(fill.text()) != 1)
    call.context.fail("str.{}: the fill character must be exactly one character", call.name);
  const auto size = static_cast<int64_t>(count_characters(call.text));
  if (width <= size) return call.self;
  const int64_t missing = width - size;
  const size_t max_memory = call.context.options().max_memory;
  call.context.charge(std::min(static_cast<size_t>(missing), max_memory) * fill.size() + call.self.memory());
  int64_t left = missing;  // number of fill characters on the left; the rest goes to the right
  if (call.name == "ljust") left = 0;
  if (call.name == "center") left = missing / 2 + (missing & width & 1);
  const bool sign = zeros && (call.text.starts_with('-') || call.text.starts_with('+'));
  TaintedString out = call.self.part(0, sign ? 1 : 0);
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(call.self, sign ? 1 : 0, call.self.size());
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return out;
}

struct Method {
  std::vector<std::string_view> parameters;
  size_t num_required;
  Value (*run)(const Call&);
};

const std::unordered_map<std::string_view, Method>& methods() {
  static const std::unordered_map<std::string_view, Method> table = {
      {"capitalize", {{}, 0, [](const Call& c) { return apply_filter(c.context, "capitalize", c.self, {}); }}},
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
      {"islower", {{}, 0, [](const Call& c) -> Value { return apply_test(c.context, "lower", c.self, {}); }}},
      {"isspace", {{}, 0, [](const Call& c) -> Value { return all_characters(c, is_python_space); }}},
      {"isupper", {{}, 0, [](const Call& c) -> Value { return apply_test(c.context, "upper", c.self, {}); }}},
      {"join", {{"iterable"}, 1, join}},
      {"ljust", {{"width", "fillchar"}, 1, pad}},
      {"lower", {{}, 0, [](const Call& c) -> Value { return c.context.map_case(c.self, python_lower); }}},
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
      {"title", {{}, 0, [](const Call& c) -> Value { return c.context.map_case(c.self, title); }}},
      {"upper", {{}, 0, [](const Call& c) -> Value { return c.context.map_case(c.self, upper_case); }}},
      {"zfill", {{"width"}, 1, pad}},
  };
  return table;
}

}  // namespace

bool has_string_method(std::string_view name) { return name == "format" || methods().contains(name); }

Value call_string_method(Context& context, const Text& self, const std::string& name, const Arguments& arguments) {
  if (name == "format") return format_braces(context, *self, arguments);
  const Method& entry = methods().at(name);
  context.scan(self->memory());
  return entry.run({context, name, *self, self->text(),
                    jinja::bind(context, "str." + name, arguments, entry.parameters, entry.num_required)});
}

TaintedString format_braces(Context& context, const TaintedString& marked, const Arguments& arguments) {
  const std::string& format = marked.text();
  TaintedString out;
  size_t next = 0;  // index of the next empty field; npos once a numbered field was seen
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out.append(marked, i, i + 1);
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out.append(marked, i, i + 1);
      ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (c == '}' || end == std::string::npos) context.fail("a format has an unmatched '{}'", c);
    const std::string field = format.substr(i + 1, end - i - 1);
    if (field.find_first_of(".[!:{") != std::string::npos) {
      context.fail(ErrorKind::unsupported,
                   "the format field {{{}}} is not supported: it may be empty, a number or a name", field);
    }
    const Value* value = nullptr;
    size_t index = 0;
    const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), index);
    const bool numbered = error == std::errc() && stop == field.data() + field.size();
    if (field.empty() || numbered) {
      if (field.empty() ? next == std::string::npos : next != 0 && next != std::string::npos) {
        context.fail("a format mixes fields with and without numbers");
      }
      if (field.empty()) index = next++;
      if (numbered) next = std::string::npos;
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [name, argument] : arguments.named) {
        if (name == field) value = &argument;
      }
    }
    if (value == nullptr) context.fail("a format has no value for the field {{{}}}", field);
    out.append(to_text(context, *value));
    i = end;
  }
  return out;
}

TaintedString format_percent(Context& context, const TaintedString& marked, const Value& arguments) {
  const std::string& format = marked.text();
  std::vector<Value> values = {arguments};
  if (is<List*>(arguments) && std::get<List*>(arguments)->is_tuple()) values = std::get<List*>(arguments)->items;
  size_t next = 0;
  TaintedString out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.append(marked, i, i + 1);
      continue;
    }
    const char kind = i + 1 < format.size() ? format[++i] : '\0';
    if (kind == '%') {
      out.append(marked, i, i + 1);
      continue;
    }
    if (kind != 's' && kind != 'd') context.fail(ErrorKind::unsupported, "formatting with %{} is not supported", kind);
    if (next >= values.size()) context.fail("a format has more placeholders than values");
    const Value& value = values[next++];
    if (kind == 's') {
      out.append(to_text(context, value));
    } else {
      out.append(std::to_string(to_integer(context, value, "%d")), Origin::author);
    }
  }
  if (next < values.size()) context.fail("a format has fewer placeholders than values");
  return out;
}

}  // namespace ingot::text::jinja
