// Methods of lists and dicts, and the global functions.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "text/jinja/context.h"
#include "text/jinja/library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

constexpr std::array list_methods = {"append", "copy"};
constexpr std::array sequence_methods = {"index", "count"};  // of lists and tuples
constexpr std::array dict_methods = {"items", "keys", "values", "get", "copy"};
// Methods and attributes of Python's types that are not supported here.
constexpr std::array other_string_methods = {"casefold",  "encode",       "expandtabs", "format_map",  "isascii",
                                             "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle",
                                             "maketrans", "swapcase",     "translate"};
constexpr std::array other_list_methods = {"clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::array other_dict_methods = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::array other_number_methods = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                             "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                             "numerator",        "real",      "to_bytes"};
constexpr int64_t max_range = 100000;  // as in Jinja2's sandbox

template <size_t n>
bool listed(const std::array<const char*, n>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [&](const char* known) { return name == known; });
}

Value call_list_method(Context& context, List* list, const std::string& name, const Arguments& arguments) {
  if (name == "copy") {
    bind(context, "list.copy", arguments, {});
    return context.new_list(iterate(context, list));
  }
  const Value item = bind(context, "list." + name, arguments, {"item"}, 1)[0];
  if (name == "append") {
    context.step();
    context.charge(sizeof(Value));
    list->items.push_back(item);
    return None{};
  }
  int64_t count = 0;
  for (size_t i = 0; i < list->items.size(); ++i) {
    if (!equal(context, list->items[i], item)) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") context.fail("list.index: the item is not in the list");
  return count;
}

Value call_dict_method(Context& context, const Dict& dict, const std::string& name, const Arguments& arguments) {
  if (name == "get") {
    const auto values = bind(context, "dict.get", arguments, {"key", "default"}, 1);
    if (const Value* item = context.find_key(dict, values[0])) return *item;
    return arguments.positional.size() + arguments.named.size() > 1 ? values[1] : Value(None{});
  }
  bind(context, "dict." + name, arguments, {});
  if (name == "copy") {
    context.charge(dict.items.size() * sizeof(dict.items[0]));
    context.step(dict.items.size());
    Dict* copy = context.new_dict();
    copy->items = dict.items;
    return copy;
  }
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      items.emplace_back(context.new_list({key, value}, List::Kind::tuple));
    }
  }
  return context.new_list(std::move(items), List::Kind::lazy);
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
  return context.new_list(std::move(items), List::Kind::lazy);
}

TaintedString format_time(Context& context, const TaintedString& format) {
  const std::time_t now = static_cast<std::time_t>(
      context.options().now.value_or(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(1024, '\0');
  // The leading space distinguishes an empty result from one that does not fit.
  out.resize(std::strftime(out.data(), out.size(), (" " + format.text()).c_str(), &local));
  if (out.empty()) context.fail(ErrorKind::resource, "the result of strftime_now is too long");
  return {out.substr(1), format.origin()};
}

}  // namespace

std::vector<Value> bind(Context& context, const std::string& callee, const Arguments& arguments,
                        const std::vector<std::string_view>& parameters, size_t num_required) {
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
    const auto index = static_cast<size_t>(found - parameters.begin());
    if (given[index]) context.fail("{} gets the argument {} twice", callee, name);
    given[index] = true;
    values[index] = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!given[i]) context.fail("{} needs the argument {}", callee, *(parameters.begin() + i));
  }
  return values;
}

bool has_method(const Value& self, std::string_view name) {
  if (is<Text>(self)) return has_string_method(name);
  if (const auto* list = std::get_if<List*>(&self)) {
    return listed(sequence_methods, name) || (!(*list)->is_tuple() && listed(list_methods, name));
  }
  if (is<Dict*>(self)) {
    switch (std::get<Dict*>(self)->role) {
      case Dict::Role::mapping: return listed(dict_methods, name);
      case Dict::Role::loop: return name == "cycle";
      case Dict::Role::name_space: return false;
    }
  }
  return false;
}

bool is_refused_method(const Value& self, std::string_view name) {
  if (is<Text>(self)) return listed(other_string_methods, name);
  if (const auto* list = std::get_if<List*>(&self)) return !(*list)->is_tuple() && listed(other_list_methods, name);
  if (const auto* dict = std::get_if<Dict*>(&self)) {
    return (*dict)->role == Dict::Role::mapping ? listed(other_dict_methods, name)
           : (*dict)->role == Dict::Role::loop  ? name == "changed"
                                                : false;
  }
  return (is<bool>(self) || is<int64_t>(self) || is<double>(self)) && listed(other_number_methods, name);
}

Value call_method(Context& context, const Value& self, const std::string& name, const Arguments& arguments) {
  if (is<Text>(self)) return call_string_method(context, std::get<Text>(self), name, arguments);
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
    context.fail("the template says: {}", to_text(context, bind(context, name, arguments, {"message"}, 1)[0]).text());
  }
  if (name == "strftime_now") {
    return format_time(context, to_marked(context, bind(context, name, arguments, {"format"}, 1)[0], "the format"));
  }
  Dict* dict = context.new_dict(name == "namespace" ? Dict::Role::name_space : Dict::Role::mapping);
  for (const Value& source : arguments.positional) {
    if (!is<Dict*>(source)) context.fail("{} takes dicts and name=value pairs", name);
    for (const auto& [key, value] : std::get<Dict*>(source)->items) context.set_key(*dict, key, value);
  }
  // Names passed by ** are keys of a dict, which may be content.
  for (const auto& [key, value] : arguments.named) context.set(*dict, key, value, Origin::caller);
  if (dict->role == Dict::Role::name_space) {
    for (const auto& [key, value] : dict->items) {
      check_namespace_name(context, to_string(context, key, "the name of a namespace's attribute"));
    }
  }
  return dict;
}

}  // namespace ingot::text::jinja
