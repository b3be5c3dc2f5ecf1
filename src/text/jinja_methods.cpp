// Methods of strings, lists and dicts, and the global functions.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "text/jinja_context.h"
#include "text/jinja_library.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

constexpr std::array string_methods = {"strip",      "lstrip",  "rstrip", "split", "rsplit",  "startswith",
                                       "endswith",   "upper",   "lower",  "title", "replace", "capitalize",
                                       "splitlines", "isdigit", "join",   "find",  "count"};
constexpr std::array list_methods = {"append", "index", "count"};
constexpr std::array dict_methods = {"items", "keys", "values", "get"};
constexpr int64_t max_range = 100000;  // as in Jinja2's sandbox

template <size_t n>
bool listed(const std::array<const char*, n>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [&](const char* known) { return name == known; });
}

Value split(Context& context, const std::string& text, const Value& separator, int64_t limit, bool from_right) {
  std::vector<Value> parts;
  if (is<Undefined>(separator) || is<None>(separator)) {
    if (from_right && limit >= 0) context.fail(ErrorKind::unsupported, "rsplit at white space with a limit");
    std::string_view rest = strip(text, nullptr, true, false);
    while (!rest.empty()) {
      size_t end = 0;
      while (end < rest.size() && !is_python_space(decode_utf8(rest, end).code_point))
        end += decode_utf8(rest, end).size;
      if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) end = rest.size();
      parts.emplace_back(std::string(rest.substr(0, end)));
      rest = strip(rest.substr(end), nullptr, true, false);
    }
    // With a limit, the last part keeps the white space behind it, as Python does.
    return context.new_list(std::move(parts));
  }
  const std::string& delimiter = to_string(context, separator, "the separator of split");
  if (delimiter.empty()) context.fail("split by an empty string");
  if (from_right) {
    size_t end = text.size();
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      if (end < delimiter.size()) break;
      const size_t found = text.rfind(delimiter, end - delimiter.size());
      if (found == std::string::npos) break;
      parts.emplace_back(text.substr(found + delimiter.size(), end - found - delimiter.size()));
      end = found;
    }
    parts.emplace_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return context.new_list(std::move(parts));
  }
  size_t at = 0;
  for (size_t found = text.find(delimiter); found != std::string::npos; found = text.find(delimiter, at)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) break;
    parts.emplace_back(text.substr(at, found - at));
    at = found + delimiter.size();
  }
  parts.emplace_back(text.substr(at));
  return context.new_list(std::move(parts));
}

bool has_affix(Context& context, const std::string& text, const Value& affix, bool at_start) {
  if (is<List*>(affix) && std::get<List*>(affix)->tuple) {
    const std::vector<Value>& choices = std::get<List*>(affix)->items;
    return std::any_of(choices.begin(), choices.end(),
                       [&](const Value& choice) { return has_affix(context, text, choice, at_start); });
  }
  const std::string& part =
      to_string(context, affix, at_start ? "the argument of startswith" : "the argument of endswith");
  return at_start ? text.starts_with(part) : text.ends_with(part);
}

std::string title_case(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (const std::string_view character : split_characters(text)) {
    out += after_cased ? lower_case(character) : upper_case(character);
    after_cased = (char_class(decode_utf8(character, 0).code_point) & char_cased) != 0;
  }
  return out;
}

std::vector<Value> split_lines(std::string_view text) {
  std::vector<Value> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    lines.emplace_back(std::string(text.substr(at, end - at)));
    at = end + (text.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return lines;
}

Value call_string_method(Context& context, const std::string& text, const std::string& name,
                         const Arguments& arguments) {
  const std::string callee = "str." + name;
  const auto take = [&](std::initializer_list<std::string_view> names, size_t required = 0) {
    return bind(context, callee, arguments, names, required);
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value chars = take({"chars"})[0];
    const std::string* set = std::get_if<std::string>(&chars);
    if (set == nullptr && !is<Undefined>(chars) && !is<None>(chars)) to_string(context, chars, "the argument of strip");
    return std::string(strip(text, set, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    const auto values = take({"sep", "maxsplit"});
    const int64_t limit = is<Undefined>(values[1]) ? -1 : to_integer(context, values[1], "maxsplit");
    return split(context, text, values[0], limit, name == "rsplit");
  }
  if (name == "startswith" || name == "endswith") {
    return has_affix(context, text, take({"affix"}, 1)[0], name == "startswith");
  }
  if (name == "replace") {
    const auto values = take({"old", "new", "count"}, 2);
    const std::string& from = to_string(context, values[0], "what replace looks for");
    const std::string& to = to_string(context, values[1], "what replace puts in");
    return apply_filter(context, "replace", text,
                        {{from, to, is<Undefined>(values[2]) ? Value(None{}) : values[2]}, {}});
  }
  if (name == "join") {
    std::string out;
    const std::vector<Value> items = iterate(context, take({"iterable"}, 1)[0]);
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string& item = to_string(context, items[i], "an item of join");
      context.charge(item.size() + text.size());
      out += (i > 0 ? text : std::string()) + item;
    }
    return out;
  }
  if (name == "find" || name == "count") {
    const Value part = take({"sub"}, 1)[0];
    const std::string& wanted = to_string(context, part, "what is looked for");
    const size_t found = text.find(wanted);
    if (name == "find") {
      if (found == std::string::npos) return int64_t{-1};
      return static_cast<int64_t>(split_characters(std::string_view(text).substr(0, found)).size());
    }
    if (wanted.empty()) return static_cast<int64_t>(split_characters(text).size() + 1);
    int64_t count = 0;
    for (size_t at = found; at != std::string::npos; at = text.find(wanted, at + wanted.size())) ++count;
    return count;
  }
  take({});
  if (name == "upper") return upper_case(text);
  if (name == "lower") return lower_case(text);
  if (name == "title") return title_case(text);
  if (name == "capitalize") return apply_filter(context, "capitalize", text, {});
  if (name == "splitlines") return context.new_list(split_lines(text));
  // isdigit
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Value call_list_method(Context& context, List* list, const std::string& name, const Arguments& arguments) {
  const Value item = bind(context, "list." + name, arguments, {"item"}, 1)[0];
  if (name == "append") {
    context.step();
    list->items.push_back(item);
    return None{};
  }
  int64_t count = 0;
  for (size_t i = 0; i < list->items.size(); ++i) {
    if (!equal(context, list->items[i], item)) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") context.fail("list.index finds nothing");
  return count;
}

Value call_dict_method(Context& context, const Dict& dict, const std::string& name, const Arguments& arguments) {
  if (name == "get") {
    const auto values = bind(context, "dict.get", arguments, {"key", "default"}, 1);
    const auto* key = std::get_if<std::string>(&values[0]);
    if (const Value* item = key != nullptr ? dict.find(*key) : nullptr) return *item;
    return is<Undefined>(values[1]) ? Value(None{}) : values[1];
  }
  bind(context, "dict." + name, arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "keys") {
      items.emplace_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      items.emplace_back(context.new_list({key, value}, true));
    }
  }
  return context.new_list(std::move(items));
}

Value range(Context& context, const Arguments& arguments) {
  const auto values = bind(context, "range", arguments, {"start", "stop", "step"}, 1);
  const bool one = is<Undefined>(values[1]);
  const int64_t start = one ? 0 : to_integer(context, values[0], "the start of range");
  const int64_t stop = to_integer(context, one ? values[0] : values[1], "the end of range");
  const int64_t step = is<Undefined>(values[2]) ? 1 : to_integer(context, values[2], "the step of range");
  if (step == 0) context.fail("the step of range is 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == max_range) {
      context.fail(ErrorKind::resource, "a range has more than {} items", max_range);
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return context.new_list(std::move(items));
}

std::string format_time(Context& context, const std::string& format) {
  const std::time_t now = static_cast<std::time_t>(
      context.options().now.value_or(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(1024, '\0');
  // A first character tells an empty result from one that does not fit.
  out.resize(std::strftime(out.data(), out.size(), (" " + format).c_str(), &local));
  if (out.empty()) context.fail(ErrorKind::resource, "the result of strftime_now is too long");
  return out.substr(1);
}

}  // namespace

std::vector<Value> bind(Context& context, const std::string& callee, const Arguments& arguments,
                        std::initializer_list<std::string_view> parameters, size_t num_required) {
  if (arguments.positional.size() > parameters.size()) {
    context.fail("{} takes {} arguments, not {}", callee, parameters.size(), arguments.positional.size());
  }
  std::vector<Value> values = arguments.positional;
  values.resize(parameters.size(), Undefined{"an argument is not given"});
  std::vector<bool> given(parameters.size(), false);
  std::fill_n(given.begin(), arguments.positional.size(), true);
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) context.fail("{} has no argument {}", callee, name);
    const auto place = static_cast<size_t>(found - parameters.begin());
    if (given[place]) context.fail("{} gets {} twice", callee, name);
    given[place] = true;
    values[place] = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!given[i]) context.fail("{} needs the argument {}", callee, *(parameters.begin() + i));
  }
  return values;
}

bool has_method(const Value& self, std::string_view name) {
  if (is<std::string>(self)) return listed(string_methods, name);
  if (is<List*>(self)) return listed(list_methods, name);
  if (is<Dict*>(self)) {
    switch (std::get<Dict*>(self)->role) {
      case Dict::Role::mapping: return listed(dict_methods, name);
      case Dict::Role::loop: return name == "cycle";
      case Dict::Role::name_space: return false;
    }
  }
  return false;
}

Value call_method(Context& context, const Value& self, const std::string& name, const Arguments& arguments) {
  if (is<std::string>(self)) return call_string_method(context, std::get<std::string>(self), name, arguments);
  if (is<List*>(self)) return call_list_method(context, std::get<List*>(self), name, arguments);
  const Dict& dict = *std::get<Dict*>(self);
  if (dict.role == Dict::Role::mapping) return call_dict_method(context, dict, name, arguments);
  if (arguments.positional.empty()) context.fail("loop.cycle needs values");
  const auto index = static_cast<size_t>(std::get<int64_t>(*dict.find("index0")));
  return arguments.positional[index % arguments.positional.size()];
}

bool is_global(std::string_view name) {
  return name == "raise_exception" || name == "strftime_now" || name == "range" || name == "namespace" ||
         name == "dict";
}

Value call_global(Context& context, const std::string& name, const Arguments& arguments) {
  if (name == "range") return range(context, arguments);
  if (name == "raise_exception") {
    context.fail("the template says: {}", to_text(context, bind(context, name, arguments, {"message"}, 1)[0]));
  }
  if (name == "strftime_now") {
    return format_time(context, to_string(context, bind(context, name, arguments, {"format"}, 1)[0], "the format"));
  }
  Dict* dict = context.new_dict(name == "namespace" ? Dict::Role::name_space : Dict::Role::mapping);
  for (const Value& source : arguments.positional) {
    if (!is<Dict*>(source)) context.fail("{} takes dicts and name=value pairs", name);
    for (const auto& [key, value] : std::get<Dict*>(source)->items) dict->set(key, value);
  }
  for (const auto& [key, value] : arguments.named) dict->set(key, value);
  return dict;
}

}  // namespace ingot::text::jinja
