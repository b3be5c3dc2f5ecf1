// Objects whose keys come in any order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "grammar/automaton.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

TEST(JsonObjects, KeysInAnyOrder) {
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
      "c": {"type": "null"}}, "required": ["a", "c"], "additionalProperties": false})";
  expect({schema,
          {R"({"a":1,"c":null})", R"({"c":null,"a":1})", R"({"c":null,"b":"x","a":1})", R"({"b":"","a":1,"c":null})"},
          {"{}", R"({"a":1})", R"({"c":null,"b":"x"})", R"({"c":null,"c":null,"a":1})", R"({"a":1,"c":null,"a":2})",
           R"({"a":1,"c":null,})", R"({"a":1,"c":null,"d":1})", R"({,"a":1,"c":null})"}});
  expect({schema,
          {R"({"a":1,"c":null})", R"({"a":1,"b":"x","c":null})"},
          {R"({"c":null,"a":1})", R"({"b":"x","a":1,"c":null})"}},
         {.in_order = true});
}

TEST(JsonObjects, OtherNamesStandAnywhereOrBehindTheOrder) {
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "required": ["a"], "additionalProperties": {"type": "null"}})";
  expect({schema,
          {R"({"x":null,"a":1})", R"({"x":null,"b":1,"y":null,"a":1,"z":null})"},
          {R"({"x":1,"a":1})", R"({"x":null})", R"({"x":null,"a":null})", R"({"a":1,"\u0062":null})"}});
  expect({schema, {R"({"a":1,"b":1,"x":null})", R"({"a":1,"x":null})"}, {R"({"x":null,"a":1})", R"({"b":1,"a":1})"}},
         {.in_order = true});
}

TEST(JsonObjects, CountsInAnyOrder) {
  expect({R"({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "minProperties": 2,
             "maxProperties": 3})",
          {R"({"b":1,"a":1})", R"({"x":1,"b":1})", R"({"x":1,"y":1,"b":1})"},
          {R"({"b":1})", R"({"x":1,"y":1})", R"({"x":1,"y":1,"z":1,"b":1})", R"({"a":1,"x":1,"y":1})"}});
  // A name that is written twice is one property, however it is escaped.
  expect({R"({"type": "object", "minProperties": 3})",
          {R"({"x":1,"y":1,"z":1})", R"({"x":1,"y":1,"z":1,"x":2})"},
          {R"({"x":1,"x":1,"y":1})", R"({"x":1,"y":1,"\u0078":1})", R"({"x":1,"y":1})"}});
  expect(
      {R"({"type": "object", "minProperties": 2, "additionalProperties": false, "patternProperties": {"^[ab]$": {}}})",
       {R"({"b":1,"a":1})"},
       {R"({"a":1})", R"({"a":1,"a":1})"}});
  EXPECT_THROW(compile_json_schema(R"({"type": "object", "minProperties": 3, "additionalProperties": false,
                                       "patternProperties": {"^[ab]$": {}}})"),
               Error);
  EXPECT_THROW(compile_json_schema(R"({"type": "object", "required": ["a", "b"], "maxProperties": 1})"), Error);
}

TEST(JsonObjects, OppositesOfNames) {
  expect({R"({"type": "object", "not": {"patternProperties": {"^x": {"type": "integer"}}}})",
          {R"({"xa":"s"})", R"({"a":1,"xa":1,"xb":null})"},
          {"{}", R"({"xa":1})", R"({"a":null,"xb":2})", R"({"xa":"s","xa":1})", R"({"xa":1,"xa":"s"})",
           R"({"xa":"s","\u0078a":1})", R"({"xa":"s","x":1,"x":"s"})"}});
  expect({R"({"type": "object", "not": {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}})",
          {R"({"b":"s"})", R"({"a":1,"c":1,"b":null})"},
          {"{}", R"({"a":"s"})", R"({"b":1,"a":null})"}});
  expect({R"({"type": "object", "properties": {"xa": {"enum": [1, "s"]}}, "maxProperties": 1,
             "not": {"patternProperties": {"^x": {"type": "integer"}}}})",
          {R"({"xa":"s"})", R"({"xb":"s"})"},
          {R"({"xa":1})", R"({"b":1})", R"({"b":1,"xb":"s"})", "{}"}});
}

// States are made of what is written, not of what could be.
TEST(JsonObjects, ManyProperties) {
  std::string properties, text, backwards;
  for (int i = 0; i < 300; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    properties += fmt::format(R"({}"p{}": {{"type": "integer"}})", comma, i);
    text += fmt::format(R"({}"p{}":{})", comma, i, i);
    backwards += fmt::format(R"({}"p{}":{})", comma, 299 - i, i);
  }
  for (const char* more : {"", R"(, "required": ["p7", "p250"])", R"(, "minProperties": 2, "maxProperties": 300)"}) {
    const GrammarPtr grammar = compile_json_schema(
        R"({"type": "object", "additionalProperties": false, "properties": {)" + properties + "}" + more + "}");
    EXPECT_LT(grammar->automaton().terms.size(), 20'000);
    EXPECT_TRUE(accepts(grammar, R"({"p250":1,"p7":2})"));
    EXPECT_FALSE(accepts(grammar, R"({"p250":1,"p7":2,"p250":1})"));
    EXPECT_FALSE(accepts(grammar, R"({"p250":1,"p300":2})"));
  }
  const GrammarPtr grammar = compile_json_schema(R"({"type": "object", "properties": {)" + properties + "}}");
  Matcher matcher(with_tokens(grammar));
  EXPECT_TRUE(matcher.accept_bytes(R"({"p299":1,"x":2,"p0":3,)"));
  std::vector<uint32_t> mask(small_vocabulary()->num_words());
  matcher.fill_mask(mask);
  EXPECT_TRUE(in_mask(mask, '"'));
  EXPECT_FALSE(in_mask(mask, '}'));
}

TEST(JsonObjects, NamesAndTextsInEveryEscape) {
  expect({R"({"type": "object", "properties": {"a/\u00e9": {"enum": ["x", "\uD83D\uDE00/"]}}, "required": ["a/\u00e9"],
             "additionalProperties": false})",
          {"{\"a/\xC3\xA9\":\"x\"}", R"({"a\/\u00e9":"x"})", R"({"\u0061\u002F\u00E9":"\u0078"})",
           R"({"a/\u00e9":"\ud83d\uDe00\/"})", "{\"a/\xC3\xA9\":\"\xF0\x9F\x98\x80/\"}"},
          {R"({"a/\u00e9":"y"})", R"({"a/\u00e9":"\u0079"})", R"({"a\/e":"x"})", R"({"a/\u00e9":"\ud83d"})",
           R"({"a/\u00e9":"\ude00/"})", R"({"a/\u00e9":"\ud83d\u0078/"})", R"({"a/\u00e9":"\x"})",
           R"({"a/\u00e9":"\u78"})", R"({"a/\u00e9":"\U0078"})"}});
  expect({R"({"type": "string", "pattern": "^[^\u00e9]+$", "maxLength": 2})",
          {R"("a\n")", R"("\u00e8")", R"("\ud83d\ude00x")", R"("\"\\")"},
          {R"("\u00e9")", R"("a\u00E9")", R"("abc")", R"("\ud83d\ude00xx")", "\"\""}});
  expect({R"({"type": "string", "not": {"const": "\u00e9"}})",
          {R"("\u00e8")", R"("e")"},
          {R"("\u00e9")", "\"\xC3\xA9\""}});
  // No escape stands inside a character.
  expect({R"({"type": "string", "minLength": 1})",
          {R"("\u0000")", R"("\u001F")"},
          {"\"\"", "\"\n\"", R"("\ud800")", "\"\xC3\\u00a9\"", "\"\xC3\\n\""}});
}

}  // namespace
}  // namespace ingot::grammar
