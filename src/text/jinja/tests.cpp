// Tests: {{ value is NAME(arguments) }}.
#include <functional>
#include <unordered_map>

#include "text/jinja/context.h"
#include "text/jinja/library.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

bool is_mapping(const Value& value) { return is<Dict*>(value) && std::get<Dict*>(value)->role == Dict::Role::mapping; }
bool is_sequence(const Value& value) {
  return is<Text>(value) || is<List*>(value) || is_mapping(value) || is<Undefined>(value);
}
bool is_cased(Context& context, const Value& value, bool upper) {
  const std::string text = to_text(context, value).text();
  return (upper ? upper_case(text) : lower_case(text)) == text && upper_case(text) != lower_case(text);
}

using Test = bool (*)(Context&, const Value&, const Value&);

struct Entry {
  Test test;
  bool takes_argument = false;
};

const std::unordered_map<std::string_view, Entry>& tests() {
  using C = Context;
  using V = Value;
  static const Test eq = [](C& c, const V& a, const V& b) { return equal(c, a, b); };
  static const Test ne = [](C& c, const V& a, const V& b) { return !equal(c, a, b); };
  static const Test lt = [](C& c, const V& a, const V& b) { return less(c, a, b); };
  static const Test gt = [](C& c, const V& a, const V& b) { return less(c, b, a); };
  static const Test le = [](C& c, const V& a, const V& b) { return less(c, a, b) || equal(c, a, b); };
  static const Test ge = [](C& c, const V& a, const V& b) { return less(c, b, a) || equal(c, a, b); };
  static const std::unordered_map<std::string_view, Entry> table = {
      {"defined", {[](C&, const V& a, const V&) { return !is<Undefined>(a); }}},
      {"undefined", {[](C&, const V& a, const V&) { return is<Undefined>(a); }}},
      {"none", {[](C&, const V& a, const V&) { return is<None>(a); }}},
      {"string", {[](C&, const V& a, const V&) { return is<Text>(a); }}},
      {"mapping", {[](C&, const V& a, const V&) { return is_mapping(a); }}},
      {"iterable", {[](C&, const V& a, const V&) { return is_sequence(a); }}},
      {"sequence", {[](C&, const V& a, const V&) { return is_sequence(a); }}},
      {"number", {[](C&, const V& a, const V&) { return is_number(a); }}},
      {"integer", {[](C&, const V& a, const V&) { return is<int64_t>(a); }}},
      {"float", {[](C&, const V& a, const V&) { return is<double>(a); }}},
      {"boolean", {[](C&, const V& a, const V&) { return is<bool>(a); }}},
      {"true", {[](C&, const V& a, const V&) { return is<bool>(a) && std::get<bool>(a); }}},
      {"false", {[](C&, const V& a, const V&) { return is<bool>(a) && !std::get<bool>(a); }}},
      {"callable", {[](C&, const V& a, const V&) { return is<const Callable*>(a) || is<Undefined>(a); }}},
      {"lower", {[](C& c, const V& a, const V&) { return is_cased(c, a, false); }}},
      {"upper", {[](C& c, const V& a, const V&) { return is_cased(c, a, true); }}},
      {"odd", {[](C& c, const V& a, const V&) { return to_integer(c, a, "the value of odd") % 2 != 0; }}},
      {"even", {[](C& c, const V& a, const V&) { return to_integer(c, a, "the value of even") % 2 == 0; }}},
      {"divisibleby", {[](C& c, const V& a, const V& b) { return equal(c, binary(c, "%", a, b), int64_t{0}); }, true}},
      {"in", {[](C& c, const V& a, const V& b) { return contains(c, b, a); }, true}},
      {"equalto", {eq, true}},
      {"eq", {eq, true}},
      {"sameas", {eq, true}},
      {"ne", {ne, true}},
      {"lt", {lt, true}},
      {"lessthan", {lt, true}},
      {"gt", {gt, true}},
      {"greaterthan", {gt, true}},
      {"le", {le, true}},
      {"ge", {ge, true}},
  };
  return table;
}

}  // namespace

bool is_test(std::string_view name) { return tests().contains(name); }

bool apply_test(Context& context, const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) context.fail(ErrorKind::unsupported, "the test {} is not supported", name);
  const Entry& entry = found->second;
  if (!entry.takes_argument) {
    bind(context, "the test " + name, arguments, {});
    return entry.test(context, value, None{});
  }
  return entry.test(context, value, bind(context, "the test " + name, arguments, {"other"}, 1)[0]);
}

}  // namespace ingot::text::jinja
