// Malicious templates that would never end, exhaust memory or the stack, or access what they must not: each gets an
// error that names the reason.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/jinja/jinja.h"

namespace ingot::text::jinja {
namespace {

using nlohmann::ordered_json;

std::string times(int count, const std::string& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

struct Case {
  ErrorKind kind;
  std::string part;  // part of the message
  std::string source;
};

// With lower limits than in production, so that they are reached quickly.
void expect_refusals(const std::vector<Case>& cases, const ordered_json& variables = ordered_json::object()) {
  RenderOptions options;
  options.max_steps = 500'000;
  options.max_memory = size_t{1} << 26;
  options.max_output = size_t{1} << 22;
  for (const Case& expected : cases) {
    const std::string shown = expected.source.substr(0, 200);
    try {
      Template(expected.source, "test.jinja").render(variables, options);
      ADD_FAILURE() << "renders: " << shown;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), expected.kind) << shown << ": " << error.message();
      EXPECT_NE(error.message().find(expected.part), std::string::npos) << shown << ": " << error.message();
      EXPECT_TRUE(error.message().starts_with("test.jinja:")) << error.message();
    }
  }
}

constexpr ErrorKind resource = ErrorKind::resource, corrupt = ErrorKind::corrupt, unsupported = ErrorKind::unsupported,
                    usage = ErrorKind::usage;

TEST(JinjaHostile, EndlessLoopsAreStopped) {
  const std::string loop = "{% for i in range(90000) %}{% for j in range(90000) %}", end = "{% endfor %}{% endfor %}";
  const std::string large = "{% set s = 'ab' * 1000000 %}";
  std::string names;
  for (int i = 0; i < 5000; ++i) names += "{% set v" + std::to_string(i) + " = 1 %}";
  expect_refusals({
      {resource, "a range has more than 100000 items", "{% for i in range(10 ** 9) %}{% endfor %}"},
      {resource, "a range has more than 100000 items",
       "{{ range(-9223372036854775807, 9223372036854775807) | length }}"},
      {resource, "steps", loop + "{% set x = i * j %}" + end},
      {resource, "steps", loop + end},
      {resource, "steps", loop + "{% if missing %}{% endif %}" + end},
      {resource, "steps", large + loop + "{{ s[0] }}" + end},
      {resource, "steps", large + loop + "{{ s | length }}" + end},
      {resource, "steps", large + loop + "{{ 'b' * 9 in s }}" + end},
      {resource, "steps", large + loop + "{{ s == s ~ '' }}" + end},
      {resource, "steps", large + loop + "{% if s.startswith('b') %}{% endif %}" + end},
      {resource, "steps", names + loop + "{{ missing }}" + end},
      {resource, "steps",
       "{% set d = {" +
           [] {
             std::string entries;
             for (int i = 0; i < 40000; ++i) entries += std::to_string(i) + ":1,";
             return entries;
           }() +
           "} %}"},
      {resource, "steps", "{% set l = [1] * 5000 %}{% set m = [l] * 5000 %}{{ m == m[:] }}"},
      {resource, "steps",
       "{% set l = ['" + times(2000, "x") +
           "'] * 2000 %}{{ l | map('upper') | unique | list | length }}"
           "{% for i in range(90000) %}{{ l | unique | list | length }}{% endfor %}"},
      {resource, "too deeply nested", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {resource, "too deeply nested",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
      {resource, "steps", "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"},
  });
}

TEST(JinjaHostile, SearchesAreLinear) {
  // Quadratic searches would compare 10^12 characters here.
  const std::string source =
      "{% set s = 'a' * 2000000 %}{% set p = 'a' * 1000000 ~ 'b' %}{{ s.find(p) }} {{ s.rfind('b' ~ p[:-1]) }} {{ p in "
      "s }} "
      "{{ s.split(p) | length }} {{ s.rsplit('b' ~ p[:-1]) | length }} {{ s.count(p) }} {{ s.replace(p, '') | length "
      "}} "
      "{{ s.strip(p) | length }}";
  EXPECT_EQ(Template(source, "test.jinja").render(ordered_json::object()).text, "-1 -1 False 1 1 0 2000000 0");
}

TEST(JinjaHostile, MemoryIsLimited) {
  const std::string doubling = "{% set n = namespace(s='ab', l=[1]) %}{% for i in range(60) %}";
  expect_refusals({
      {resource, "bytes of strings", "{{ 'x' * 10000000000 }}"},
      {resource, "steps", "{{ [0] * 10000000000 }}"},
      {resource, "steps", doubling + "{% set n.s = n.s ~ n.s %}{% endfor %}"},
      {resource, "steps", doubling + "{% set n.s = n.s + n.s %}{% endfor %}"},
      {resource, "steps", doubling + "{% set n.s = n.s.replace('', n.s) %}{% endfor %}"},
      {resource, "the output is longer than",
       doubling + "{% set s %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = s %}{% endfor %}"},
      {resource, "", doubling + "{% set n.l = n.l + n.l %}{% endfor %}"},
      {resource, "",
       "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}"},
      {resource, "",
       "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson "
       "}}"},
      {resource, "",
       "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == n.l[:] "
       "}}"},
      {resource, "bytes of strings", "{{ (['x' * 1000000] * 100000) | join }}"},
      {resource, "bytes of strings", "{{ ['x' * 1000000] * 100000 }}"},
      {resource, "bytes of strings", "{{ (['x' * 1000000] * 100000) | tojson }}"},
      {resource, "bytes of strings", "{{ [{'x' * 1000000: 1}] * 100000 }}"},
      {resource, "bytes of strings", "{{ ([{'x' * 1000000: 1}] * 100000) | tojson }}"},
      {resource, "bytes of strings", "{{ 'x' | replace('x', 'y' * 1000000) | replace('y', 'z' * 1000000) }}"},
      {resource, "bytes of strings", "{{ ('a' * 100000).join('b' * 100000) }}"},
      {resource, "bytes of strings", "{{ 'x'.zfill(10 ** 12) }}"},
      {resource, "bytes of strings", "{{ 'x'.center(10 ** 18) }}"},
      {resource, "bytes of strings", "{{ ('\\n' * 1000000) | indent(1000, true, true) }}"},
      {resource, "bytes of strings", "{{ ('a,' * 100000000).split(',') | length }}"},
      {resource, "bytes of strings", "{{ ('ab' * 50000000) | list | length }}"},
      {resource, "bytes of strings", "{{ ('a' * 200000000) | upper | length }}"},
      {resource, "bytes of strings", "{{ ('a' * 200000000).title() | length }}"},
      {resource, "the output is longer than",
       "{% set s = 'x' * 100000 %}{% for i in range(1000) %}{{ s }}{% endfor %}"},
      {resource, "too deeply nested", "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}"},
      {resource, "too deeply nested", "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}"},
      {resource, "too deeply nested",
       "{% set n = namespace(l=[]) %}{% for i in range(50000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"},
      {resource, "an integer is too large", "{{ 9223372036854775807 + 1 }}"},
      {resource, "an integer is too large", "{{ 10 ** 10 ** 10 }}"},
      {resource, "an integer is too large", "{{ '" + times(100, "9") + "' | int }}"},
      {unsupported, "formatting with", "{{ '%1000000000d' % 1 }}"},
      {unsupported, "the format field {:>1000000000}", "{{ '{:>1000000000}'.format(1) }}"},
  });
}

TEST(JinjaHostile, DeepNestingIsRefused) {
  const auto deep = [](const std::string& before, const std::string& after) {
    return "{{ " + times(80000, before) + "1" + times(80000, after) + " }}";
  };
  expect_refusals({
      {corrupt, "too deeply nested", deep("(", ")")},
      {corrupt, "too deeply nested", deep("[", "]")},
      {corrupt, "too deeply nested", deep("{1:", "}")},
      {corrupt, "too deeply nested", deep("x(", ")")},
      {corrupt, "too deeply nested", deep("x[", "]")},
      {corrupt, "too deeply nested", deep("not ", "")},
      {corrupt, "too deeply nested", deep("-", "")},
      {corrupt, "too deeply nested", deep("1 if 1 else ", "")},
      {corrupt, "too deeply nested", deep("", " if 1")},
      {corrupt, "too long", deep("1+", "")},
      {corrupt, "too long", deep("1 ** ", "")},
      {corrupt, "too long", deep("1 and ", "")},
      {corrupt, "too long", deep("", " | list")},
      {corrupt, "a test follows a test", deep("", " is none")},
      {corrupt, "too long", deep("", " is in x")},
      {corrupt, "too long", deep("x", ".x")},
      {corrupt, "too long", deep("x", "[1]")},
      {corrupt, "too long", deep("x", "()")},
      {corrupt, "too deeply nested", times(100000, "{% if 1 %}")},
      {corrupt, "too deeply nested", times(50000, "{% for i in x %}")},
      {corrupt, "too deeply nested", times(50000, "{% set x %}")},
      {corrupt, "too large", "{{ " + times(1000000, "9") + " }}"},
      {corrupt, "too large", "{{ 1e999999999 }}"},
      {resource, "the template is longer than", "{{ '" + times(2000000, "x") + "' }}"},
      {resource, "the template is longer than", times(2000000, "x")},
      {corrupt, "is not closed", "{{ '" + times(500000, "\\'")},
      {corrupt, "is not closed", "{% raw %}" + times(100000, "{% endra")},
      {corrupt, "is not closed", "{#" + times(1000000, "#")},
  });
}

TEST(JinjaHostile, ItemsOfScalarsAreErrors) {
  expect_refusals({{usage, "items of a str", "{{ 'x' | dictsort }}"},
                   {usage, "items of a list", "{{ [1] | dictsort }}"},
                   {usage, "items of a", "{{ 5 | dictsort }}"},
                   {usage, "items of a", "{{ none | dictsort }}"},
                   {usage, "items of a", "{{ namespace(a=1) | dictsort }}"},
                   {usage, "items of a", "{{ namespace(a=1) | items }}"},
                   {usage, "items of a", "{% for x in [1] %}{{ loop | items }}{% endfor %}"}});
}

TEST(JinjaHostile, ForbiddenAccessIsRefused) {
  expect_refusals(
      {
          {usage, "the attribute __class__ is unsafe", "{{ ''.__class__ }}"},
          {usage, "the attribute __class__ is unsafe", "{{ ''['__class__'] }}"},
          {usage, "the attribute __init__ is unsafe", "{{ [].__init__.__globals__ }}"},
          {usage, "the attribute __class__ is unsafe", "{{ m.__class__.__mro__[1].__subclasses__() }}"},
          {usage, "the attribute __globals__ is unsafe", "{{ range.__globals__ }}"},
          {usage, "the attribute __code__ is unsafe", "{{ raise_exception.__code__ }}"},
          {usage, "the attribute __self__ is unsafe", "{{ ''.upper.__self__ }}"},
          {usage, "the attribute __class__ is unsafe", "{{ namespace(a=1).__class__ }}"},
          {usage, "the attribute __class__ is unsafe", "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}"},
          {usage, "the attribute __class__ is unsafe", "{{ [m] | map(attribute='__class__') | list }}"},
          {usage, "the attribute __class__ is unsafe", "{{ [m] | selectattr('a.__class__') | list }}"},
          {usage, "the attribute __class__ is unsafe", "{{ [m] | sort(attribute='__class__') }}"},
          {unsupported, "the filter attr is not supported", "{{ '' | attr('__class__') }}"},
          {unsupported, "the filter attr is not supported", "{{ [''] | map('attr', '__class__') | list }}"},
          {unsupported, "the format field {0.__class__}", "{{ '{0.__class__}'.format(1) }}"},
          {unsupported, "the format field {a[__class__]}", "{{ '{a[__class__]}'.format(a=m) }}"},
          {unsupported, "the attribute format_map", "{{ '{a.__class__}'.format_map({'a': 1}) }}"},
          {unsupported, "the attribute translate", "{{ 'a'.translate({}) }}"},
          {unsupported, "the attribute pop", "{{ m.pop('a') }}"},
          {unsupported, "the attribute clear", "{{ [1].clear() }}"},
          {unsupported, "the global self", "{{ self }}"},
          {unsupported, "the global cycler", "{{ cycler.__init__ }}"},
          {unsupported, "the statement include", "{% include '/etc/passwd' %}"},
          {unsupported, "the statement import", "{% import 'os' as os %}"},
          {unsupported, "the statement extends", "{% extends 'x' %}"},
          {unsupported, "the statement do", "{% do x() %}"},
          {unsupported, "the statement call", "{% call x() %}{% endcall %}"},
          {unsupported, "a recursive loop", "{% for a in [] recursive %}{% endfor %}"},
          {unsupported, "the name varargs in a macro", "{% macro m() %}{{ varargs }}{% endmacro %}"},
          {unsupported, "a macro inside of a loop",
           "{% for a in [1] %}{% macro m() %}{{ a }}{% endmacro %}{% endfor %}"},
          {usage, "a namespace cannot hold the attribute _x", "{% set n = namespace() %}{% set n._x = 1 %}"},
          {usage, "a namespace cannot hold the attribute __class__", "{{ namespace({'__class__': 1}) }}"},
          {usage, "is not a namespace", "{% set m.a = 2 %}"},
          {usage, "the function range is printed", "{{ range }}"},
      },
      {{"m", {{"a", 1}}}});
}

}  // namespace
}  // namespace ingot::text::jinja
