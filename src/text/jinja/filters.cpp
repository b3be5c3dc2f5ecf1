// Filters: {{ value | NAME(arguments) }}.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/jinja/filter_call.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

// Capitalises words, which begin after white space, '-' and opening brackets.
std::string filter_title(std::string_view text) {
  std::string out;
  const auto is_separator = [&](size_t at) {
    return is_python_space(decode_utf8(text, at).code_point) ||
           std::string_view("-({[<").find(text[at]) != std::string::npos;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool separator = is_separator(at);
    while (at < text.size() && is_separator(at) == separator) at += decode_utf8(text, at).size;
    const std::string_view word = text.substr(begin, at - begin);
    if (separator) {
      out += word;
    } else {
      const size_t first = decode_utf8(word, 0).size;
      out += upper_case(word.substr(0, first)) + python_lower(word.substr(first));
    }
  }
  return out;
}

TaintedString replace(const FilterCall& call) {
  const auto values = call.bind({"old", "new", "count"}, 2);
  const TaintedString marked = call.text(), to = to_text(call.context, values[1]);
  const std::string& text = marked.text();
  const std::string from = to_text(call.context, values[0]).text();
  int64_t limit = given(values[2]) && !is<None>(values[2]) ? to_integer(call.context, values[2], "count") : -1;
  TaintedString out;
  size_t at = 0;
  if (from.empty()) {  // inserts `to` before every character and at the end
    for (; at < text.size() && limit != 0; --limit) {
      const size_t size = decode_utf8(text, at).size;
      call.context.charge(size + sizeof(ByteRange) + to.memory());
      out.append(to);
      out.append(marked, at, at + size);
      at += size;
    }
    if (limit != 0) out.append(to);
    out.append(marked, at, text.size());
    return out;
  }
  for (size_t found = find_text(text, from); found != std::string::npos && limit != 0;
       found = find_text(text, from, at), --limit) {
    call.context.charge(found - at + sizeof(ByteRange) + to.memory());
    out.append(marked, at, found);
    out.append(to);
    at = found + from.size();
  }
  out.append(marked, at, text.size());
  return out;
}

TaintedString indent(const FilterCall& call) {
  const auto values = call.bind({"width", "first", "blank"});
  TaintedString margin;
  if (is<Text>(values[0])) {
    margin = *std::get<Text>(values[0]);
  } else {
    const int64_t width = given(values[0]) ? to_integer(call.context, values[0], "width") : 4;
    margin.append(std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' '), Origin::author);
  }
  const bool first = flag(values[1], false), blank = flag(values[2], false);
  const TaintedString& marked = to_marked(call.context, call.value, "the value of indent");
  const std::string& text = marked.text();
  TaintedString out;
  if (first) out.append(margin);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0) {
      out.append(marked, at - 1, at);
      if (blank || end > at) out.append(margin);
    }
    call.context.charge(end - at + sizeof(ByteRange) + margin.memory());
    out.append(marked, at, end);
    at = end + 1;
  }
  return out;
}

// The attribute of an item: a name, an index, or a dotted path of these. Unless null, `missing` replaces every one that
// does not exist.
Value attribute_of(Context& context, const Value& item, const Value& path, const Value* missing = nullptr) {
  const auto or_missing = [&](const Value& value) {
    return is<Undefined>(value) && missing != nullptr ? *missing : value;
  };
  if (!is<Text>(path)) return or_missing(get_item(context, item, path));
  Value value = item;
  const std::string& names = *text_of(path);
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('.', at), names.size());
    const std::string name = names.substr(at, end - at);
    int64_t index = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && stop == name.data() + name.size();
    value = or_missing(is_index ? get_item(context, value, index) : get_item(context, value, author_text(name)));
    at = end + 1;
  }
  return value;
}

// The sort key of an item; texts are compared case-insensitively unless `case_sensitive`.
Value sort_key(Context& context, const Value& item, const Value& attribute, bool case_sensitive) {
  Value key = given(attribute) && !is<None>(attribute) ? attribute_of(context, item, attribute) : item;
  if (!case_sensitive && is<Text>(key)) key = context.map_case(*std::get<Text>(key), python_lower);
  return key;
}

// Sorts the items by their keys, stably.
std::vector<Value> sort_by(Context& context, std::vector<Value> items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (equal(context, keys[a], keys[b])) return a < b;  // equal keys are not compared by less()
    return less(context, keys[a], keys[b]) != reverse;
  });
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

Value sort(const FilterCall& call) {
  const auto values = call.bind({"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = iterate(call.context, call.value), keys;
  for (const Value& item : items) keys.push_back(sort_key(call.context, item, values[2], flag(values[1], false)));
  return call.context.new_list(sort_by(call.context, std::move(items), keys, flag(values[0], false)));
}

// The (key, value) pairs of a mapping. Errors: usage for another value.
Value items_of(const FilterCall& call) {
  const auto* dict = std::get_if<Dict*>(&call.value);
  if (dict == nullptr || (*dict)->role != Dict::Role::mapping)
    call.context.fail("items of a {}", type_name(call.value));
  return call_method(call.context, call.value, "items", {});
}

Value dict_sort(const FilterCall& call) {
  const auto values = call.bind({"case_sensitive", "by", "reverse"});
  const std::string by = given(values[1]) ? to_string(call.context, values[1], "by") : "key";
  if (by != "key" && by != "value") call.context.fail("dictsort by {}, not key or value", by);
  std::vector<Value> items = iterate(call.context, items_of(call)), keys;
  const Value field = int64_t{by == "key" ? 0 : 1};
  for (const Value& item : items) keys.push_back(sort_key(call.context, item, field, flag(values[0], false)));
  return call.context.new_list(sort_by(call.context, std::move(items), keys, flag(values[2], false)));
}

// Errors: usage for values that are not hashable in Python.
void check_hashable(Context& context, const Value& value) {
  const Context::Depth depth(context);
  const auto* list = std::get_if<List*>(&value);
  if (is<Dict*>(value) || (list != nullptr && !(*list)->is_tuple()))
    context.fail("a {} cannot be hashed", type_name(value));
  if (list == nullptr) return;
  for (const Value& item : (*list)->items) check_hashable(context, item);
}

Value unique(const FilterCall& call) {
  const auto values = call.bind({"case_sensitive", "attribute"});
  std::vector<Value> selected, keys;
  for (Value& item : iterate(call.context, call.value)) {
    Value key = sort_key(call.context, item, values[1], flag(values[0], false));
    check_hashable(call.context, key);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& old) { return equal(call.context, old, key); }))
      continue;
    keys.push_back(std::move(key));
    selected.push_back(std::move(item));
  }
  return call.context.new_list(std::move(selected), List::Kind::lazy);
}

Value map(const FilterCall& call) {
  if (!truth(call.value)) return call.context.new_list({}, List::Kind::lazy);  // also of none, as in Jinja2
  std::vector<Value> out;
  Arguments rest = call.arguments;
  if (rest.positional.empty()) {
    const auto values = call.bind({"attribute", "default"}, 1);
    for (const Value& item : iterate(call.context, call.value)) {
      out.push_back(attribute_of(call.context, item, values[0], given(values[1]) ? &values[1] : nullptr));
    }
    return call.context.new_list(std::move(out), List::Kind::lazy);
  }
  const std::string filter = to_string(call.context, rest.positional[0], "the filter of map");
  if (!is_filter(filter)) call.context.fail(ErrorKind::unsupported, "the filter {} is not supported", filter);
  rest.positional.erase(rest.positional.begin());
  const Context::Depth depth(call.context);
  for (const Value& item : iterate(call.context, call.value))
    out.push_back(apply_filter(call.context, filter, item, rest));
  return call.context.new_list(std::move(out), List::Kind::lazy);
}

// select, reject, selectattr and rejectattr.
Value select(const FilterCall& call, bool wanted, bool by_attribute) {
  Arguments rest = call.arguments;
  const auto pop = [&] {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  if (by_attribute && rest.positional.empty()) call.context.fail("{} needs an attribute", call.name);
  const Value attribute = by_attribute ? pop() : Value(None{});
  std::string test;
  if (!rest.positional.empty()) {
    test = to_string(call.context, pop(), "the test of a filter");
    if (!is_test(test)) call.context.fail(ErrorKind::unsupported, "the test {} is not supported", test);
  }
  if (!truth(call.value)) return call.context.new_list({}, List::Kind::lazy);  // also of none, as in Jinja2
  std::vector<Value> selected;
  for (Value& item : iterate(call.context, call.value)) {
    const Value value = by_attribute ? attribute_of(call.context, item, attribute) : item;
    const bool holds = test.empty() ? truth(value) : apply_test(call.context, test, value, rest);
    if (holds == wanted) selected.push_back(std::move(item));
  }
  return call.context.new_list(std::move(selected), List::Kind::lazy);
}

Value join(const FilterCall& call) {
  const auto values = call.bind({"d", "attribute"});
  const TaintedString separator = given(values[0]) ? to_text(call.context, values[0]) : TaintedString();
  TaintedString out;
  bool first = true;
  for (const Value& item : iterate(call.context, call.value)) {
    if (!first) out.append(separator);
    first = false;
    const bool by_attribute = given(values[1]) && !is<None>(values[1]);
    out.append(to_text(call.context, by_attribute ? attribute_of(call.context, item, values[1]) : item));
    call.context.charge(separator.memory());
  }
  return out;
}

Value extreme(const FilterCall& call, bool largest) {
  const auto values = call.bind({"case_sensitive", "attribute"});
  const std::vector<Value> items = iterate(call.context, call.value);
  if (items.empty()) return Undefined{"an empty list has no first item"};
  size_t best = 0;
  Value best_key = sort_key(call.context, items[0], values[1], flag(values[0], false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(call.context, items[i], values[1], flag(values[0], false));
    if (largest ? less(call.context, best_key, key) : less(call.context, key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value sum(const FilterCall& call) {
  const auto values = call.bind({"attribute", "start"});
  Value total = given(values[1]) ? values[1] : Value(int64_t{0});
  for (const Value& item : iterate(call.context, call.value)) {
    const bool by_attribute = given(values[0]) && !is<None>(values[0]);
    total = binary(call.context, "+", total, by_attribute ? attribute_of(call.context, item, values[0]) : item);
  }
  return total;
}

Value to_json_filter(const FilterCall& call) {
  const auto values = call.bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(values[0], false);
  if (given(values[1]) && !is<None>(values[1])) {
    style.indent = static_cast<int>(std::clamp<int64_t>(to_integer(call.context, values[1], "indent"), 0, 100));
    style.item_separator = ",";
  }
  if (given(values[2]) && !is<None>(values[2])) {
    const std::vector<Value> separators = iterate(call.context, values[2]);
    if (separators.size() != 2) call.context.fail("tojson takes two separators");
    style.item_separator = to_string(call.context, separators[0], "a separator");
    style.key_separator = to_string(call.context, separators[1], "a separator");
  }
  style.sort_keys = flag(values[3], false);
  return to_json(call.context, call.value, style);
}

Value edge(const FilterCall& call, bool first) {
  call.bind({});
  std::vector<Value> items = iterate(call.context, call.value);
  if (items.empty()) return Undefined{"an empty list has no first or last item"};
  return first ? items.front() : items.back();
}

Value reverse(const FilterCall& call) {
  call.bind({});
  std::vector<Value> items = iterate(call.context, call.value);
  std::reverse(items.begin(), items.end());
  if (!is<Text>(call.value)) return call.context.new_list(std::move(items), List::Kind::lazy);
  TaintedString out;
  for (const Value& item : items) out.append(*std::get<Text>(item));
  return out;
}

Value as_text(const FilterCall& call) {
  call.bind({});
  return is<Text>(call.value) ? call.value : Value(call.text());
}

Value trim(const FilterCall& call) {
  const auto values = call.bind({"chars"});
  if (const std::string* chars = text_of(values[0])) call.context.charge(chars->size() * sizeof(std::string_view));
  const TaintedString whole = call.text();
  const std::string_view stripped = strip(whole.text(), text_of(values[0]), true, true);
  const auto begin = static_cast<size_t>(stripped.data() - whole.text().data());
  return whole.part(begin, begin + stripped.size());
}

Value fall_back(const FilterCall& call) {
  const auto values = call.bind({"default_value", "boolean"});
  const bool missing = is<Undefined>(call.value) || (flag(values[1], false) && !truth(call.value));
  if (!missing) return call.value;
  const auto& named = call.arguments.named;
  const bool has_default =
      !call.arguments.positional.empty() ||
      std::any_of(named.begin(), named.end(), [](const auto& pair) { return pair.first == "default_value"; });
  return has_default ? values[0] : Value(Text(""));
}

Value items(const FilterCall& call) {
  call.bind({});
  if (is<Undefined>(call.value)) return call.context.new_list({}, List::Kind::lazy);
  return items_of(call);
}

Value count_words(const FilterCall& call) {
  call.bind({});
  int64_t count = 0;
  bool inside = false;
  const std::string text = call.text().text();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool word = (char_class(c.code_point) & char_word) != 0;
    count += word && !inside;
    inside = word;
    at += c.size;
  }
  return count;
}

using Filter = Value (*)(const FilterCall&);

const std::unordered_map<std::string_view, Filter>& filters() {
  static const Filter count = [](const FilterCall& c) -> Value {
    c.bind({});
    return static_cast<int64_t>(length(c.context, c.value));
  };
  static const std::unordered_map<std::string_view, Filter> table = {
      {"abs", absolute},
      {"capitalize",
       [](const FilterCall& c) -> Value { return c.bind({}), c.context.map_case(c.text(), python_capitalize); }},
      {"count", count},
      {"d", fall_back},
      {"default", fall_back},
      {"dictsort", dict_sort},
      {"first", [](const FilterCall& c) { return edge(c, true); }},
      {"float", to_float},
      {"format",
       [](const FilterCall& c) -> Value {
         return format_percent(c.context, c.text(), c.context.new_list(c.arguments.positional, List::Kind::tuple));
       }},
      {"indent", [](const FilterCall& c) -> Value { return indent(c); }},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", [](const FilterCall& c) { return edge(c, false); }},
      {"length", count},
      {"list",
       [](const FilterCall& c) -> Value { return c.bind({}), c.context.new_list(iterate(c.context, c.value)); }},
      {"lower", [](const FilterCall& c) -> Value { return c.bind({}), c.context.map_case(c.text(), python_lower); }},
      {"map", map},
      {"max", [](const FilterCall& c) { return extreme(c, true); }},
      {"min", [](const FilterCall& c) { return extreme(c, false); }},
      {"reject", [](const FilterCall& c) { return select(c, false, false); }},
      {"rejectattr", [](const FilterCall& c) { return select(c, false, true); }},
      {"replace", [](const FilterCall& c) -> Value { return replace(c); }},
      {"reverse", reverse},
      {"round", round},
      {"safe", [](const FilterCall& c) -> Value { return std::get<Text>(as_text(c)).marked_safe(); }},
      {"select", [](const FilterCall& c) { return select(c, true, false); }},
      {"selectattr", [](const FilterCall& c) { return select(c, true, true); }},
      {"sort", sort},
      {"string", as_text},
      {"sum", sum},
      {"title", [](const FilterCall& c) -> Value { return c.bind({}), c.context.map_case(c.text(), filter_title); }},
      {"tojson", to_json_filter},
      {"trim", trim},
      {"unique", unique},
      {"upper", [](const FilterCall& c) -> Value { return c.bind({}), c.context.map_case(c.text(), upper_case); }},
      {"wordcount", count_words},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }

Value apply_filter(Context& context, const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) context.fail(ErrorKind::unsupported, "the filter {} is not supported", name);
  return found->second(FilterCall{context, name, value, arguments});
}

}  // namespace ingot::text::jinja
