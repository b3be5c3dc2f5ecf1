// JSON objects whose keys may come in any order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "grammar/automaton.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

TEST(JsonObjects, KeysMayComeInAnyOrder) {
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

TEST(JsonObjects, AdditionalPropertiesComeAnywhereOrAfterTheOrderedOnes) {
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "required": ["a"], "additionalProperties": {"type": "null"}})";
  expect({schema,
          {R"({"x":null,"a":1})", R"({"x":null,"b":1,"y":null,"a":1,"z":null})"},
          {R"({"x":1,"a":1})", R"({"x":null})", R"({"x":null,"a":null})", R"({"a":1,"\u0062":null})"}});
  expect({schema, {R"({"a":1,"b":1,"x":null})", R"({"a":1,"x":null})"}, {R"({"x":null,"a":1})", R"({"b":1,"a":1})"}},
         {.in_order = true});
}

TEST(JsonObjects, PropertyCountsHoldInAnyOrder) {
  expect({R"({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "minProperties": 2,
             "maxProperties": 3})",
          {R"({"b":1,"a":1})", R"({"x":1,"b":1})", R"({"x":1,"y":1,"b":1})"},
          {R"({"b":1})", R"({"x":1,"y":1})", R"({"x":1,"y":1,"z":1,"b":1})", R"({"a":1,"x":1,"y":1})"}});
  // Two spellings of a key (with and without escapes) are the same property.
  expect({R"({"type": "object", "minProperties": 3})",
          {R"({"x":1,"y":1,"z":1})", R"({"x":1,"y":1,"z":1,"x":2})"},
          {R"({"x":1,"x":1,"y":1})", R"({"x":1,"y":1,"\u0078":1})", R"({"x":1,"y":1})"}});
  expect(
      {R"({"type": "object", "minProperties": 2, "additionalProperties": false, "patternProperties": {"^[ab]$": {}}})",
       {R"({"b":1,"a":1})"},
       {R"({"a":1})", R"({"a":1,"a":1})"}});
  // One long key, and unbounded keys with few of each length.
  expect(
      {R"({"type": "object", "minProperties": 1, "additionalProperties": false, "patternProperties": {"^a{5000}$": {}}})",
       {("{\"" + std::string(5000, 'a') + "\":1}").c_str()},
       {"{}"}});
  expect(
      {R"({"type": "object", "minProperties": 2, "additionalProperties": false, "patternProperties": {"^(abc)*$": {}}})",
       {R"({"":1,"abcabc":1})", R"({"abc":1,"":1,"abc":1})"},
       {R"({"abc":1})", R"({"abc":1,"abc":1})"}});
  EXPECT_EQ(refusal(R"({"type": "object", "minProperties": 2, "additionalProperties": false,
                        "patternProperties": {"^a{50000}$": {}}})"),
            "resource: checking whether any text meets all conditions takes more than 20000 states");
  for (const char* none : {R"({"type": "object", "minProperties": 2, "additionalProperties": false,
                              "patternProperties": {"^a{5000}$": {}}})",
                           R"({"type": "object", "minProperties": 3, "additionalProperties": false,
                              "patternProperties": {"^[ab]$": {}}})",
                           R"({"type": "object", "required": ["a", "b"], "maxProperties": 1})"}) {
    EXPECT_EQ(refusal(none), "usage: no value satisfies the schema");
  }
}

TEST(JsonObjects, NotInvertsPropertyRules) {
  expect({R"({"type": "object", "not": {"patternProperties": {"^x": {"type": "integer"}}}})",
          {R"({"xa":"s"})", R"({"a":1,"xa":1,"xb":null})"},
          {"{}", R"({"xa":1})", R"({"a":null,"xb":2})", R"({"xa":"s","xa":1})", R"({"xa":1,"xa":"s"})",
           R"({"xa":"s","\u0078a":1})", R"({"xa":"s","x":1,"x":"s"})"}});
  expect({R"({"type": "object", "not": {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}})",
          {R"({"b":"s"})", R"({"a":1,"c":1,"b":null})"},
          {"{}", R"({"a":"s"})", R"({"b":1,"a":null})"}});
  expect({R"({"type": "object", "not": {"properties": {"a": {"type": ["integer", "string", "boolean", "null", "array",
             "object"]}}}})",
          {R"({"a":1.5})"},
          {"{}", R"({"a":1})", R"({"a":"s"})"}});
  expect({R"({"type": "object", "properties": {"xa": {"enum": [1, "s"]}}, "maxProperties": 1,
             "not": {"patternProperties": {"^x": {"type": "integer"}}}})",
          {R"({"xa":"s"})", R"({"xb":"s"})"},
          {R"({"xa":1})", R"({"b":1})", R"({"b":1,"xb":"s"})", "{}"}});
}

// The text of a key is stored while it may still become a property's name. An escape takes up to six bytes.
TEST(JsonObjects, LongNamesMayHaveEscapes) {
  const char* const schema = R"({"type": "object", "properties": {"ab": {"type": "integer"}}})";
  expect({schema,
          {R"({"\u0061\u0062":1})", R"({"\u0061b":1})", R"({"a\u0062":1})", R"({"\u0061\u0062\u0063":"s"})",
           R"({"\n":"s"})", R"({"a\n":"s"})", R"({"\u0062a":"s"})"},
          {R"({"\u0061\u0062":"s"})", R"({"\u0061b":"s"})", R"({"a\u0062":"s"})"}});
  for (const char* begin : {"\\n", "a\\u0061", "\\u0061\\u0062\\u0062", "\xF0\x9F\x98\x80\\u0061"}) {
    const auto shared = with_tokens(compile_json_schema(schema));
    Matcher matcher(shared);
    EXPECT_TRUE(matcher.accept_bytes("{\"" + std::string(begin) + std::string(20'000, 'x') + "\":\"s\"}")) << begin;
    EXPECT_TRUE(matcher.may_end());
    EXPECT_LT(shared->bytes(), size_t{1} << 20) << begin;
  }
}

// States are created for what is written, not for every possible order.
TEST(JsonObjects, ManyPropertiesNeedFewStates) {
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
    EXPECT_TRUE(accepts(grammar, "{" + text + "}"));
    EXPECT_TRUE(accepts(grammar, "{" + backwards + "}"));
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

// The properties that may still come are counted once per state, not once per possible next member.
TEST(JsonObjects, ManyCountedPropertiesNeedFewSteps) {
  std::string properties;
  for (int i = 0; i < 4000; ++i) properties += fmt::format(R"({}"p{}": {{"type": "integer"}})", i == 0 ? "" : ",", i);
  const auto counted = [&](const char* more) {
    return compile_json_schema(R"({"type": "object", "properties": {)" + properties + "}" + more + "}");
  };
  const GrammarPtr closed = counted(R"(, "minProperties": 3, "maxProperties": 3999, "additionalProperties": false)");
  EXPECT_TRUE(accepts(closed, R"({"p250":1,"p7":2,"p3999":3})"));
  EXPECT_FALSE(accepts(closed, R"({"p250":1,"p7":2})"));
  const GrammarPtr open = counted(R"(, "maxProperties": 2, "required": ["p8"])");
  EXPECT_TRUE(accepts(open, R"({"x":1,"p8":2})"));
  EXPECT_FALSE(accepts(open, R"({"x":1,"p7":2})"));
  // When a member with some name must still come, all ways to write each are tried.
  EXPECT_EQ(refusal(R"({"type": "object", "properties": {)" + properties +
                    R"(}, "not": {"additionalProperties": {"type": "integer"}}})"),
            "resource: not, if or oneOf require a property with an unspecified name, in more than 512 ways");
}

// The time limit is checked in each step of a combination. The clock of this test counts its readings: the limit is
// reached in the middle of the one long combination.
TEST(JsonObjects, TimeLimitAppliesInsideACombination) {
  EXPECT_EQ(refusal("true", {.max_seconds = -1}), "resource: the schema takes more than -1 s to compile");
  std::string choices;
  for (int i = 0; i < 10; ++i) {
    choices +=
        fmt::format(R"({}{{"anyOf": [{{"required": ["p{}"]}}, {{"required": ["q{}"]}}]}})", i == 0 ? "" : ",", i, i);
  }
  const std::string schema = R"({"type": "object", "allOf": [)" + choices + "]}";
  static int readings;
  const auto seconds = [] { return static_cast<double>(++readings); };
  EXPECT_EQ(refusal(schema, {.max_seconds = 300, .seconds = seconds}),
            "resource: the schema takes more than 300 s to compile");
  readings = 0;
  EXPECT_EQ(refusal(schema, {.max_seconds = 1e9, .seconds = seconds}), "none");
  EXPECT_GT(readings, 2000);  // 1024 combinations, and those before the last key
}

// A required member must not be one of finitely many names that may have been used up.
TEST(JsonObjects, RequiredMembersOfFinitelyManyNames) {
  const auto with_digits = [](const char* digits) {
    const std::string pattern = std::string("^x[0-9]") + digits + "$";
    return R"({"type": "object", "additionalProperties": false, "patternProperties": {")" + pattern +
           R"(": {}}, "not": {"patternProperties": {")" + pattern + R"(": {"type": "integer"}}}})";
  };
  for (const char* digits : {"", "{2}", "{4}"}) {
    EXPECT_EQ(
        refusal(with_digits(digits)),
        "unsupported: not, if or oneOf require a property whose pattern allows fewer than 100000 names, which is not "
        "supported");
  }
  for (const char* digits : {"{5}", "*"}) {
    expect({with_digits(digits).c_str(), {R"({"x12345":1,"x00000":"s"})"}, {R"({"x12345":1,"x00000":2})", "{}"}});
  }
}

// Each property written reduces the remaining count, also when one property must satisfy a requirement.
TEST(JsonObjects, CountsAndRequirementsCombine) {
  const char* const need = R"({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"],
      "additionalProperties": false, "not": {"additionalProperties": {"type": "integer"}}, )";
  expect(
      {(std::string(need) + R"("maxProperties": 1})").c_str(), {R"({"a":"s"})"}, {R"({"a":1})", R"({"b":"s"})", "{}"}});
  expect({(std::string(need) + R"("minProperties": 2})").c_str(),
          {R"({"a":"s","b":1})", R"({"b":"s","a":1})"},
          {R"({"a":"s"})", R"({"a":1,"b":1})", R"({"a":1,"b":"s","a":1})"}});
}

// When additional properties are allowed, a property's name is recognised at its end, however it is escaped or split
// into tokens. It then gets its schema, and occurs once.
TEST(JsonObjects, PropertiesAreRecognisedAmongAdditionalOnes) {
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}},
      "additionalProperties": {"type": "boolean"}})";
  expect({schema,
          {R"({"a":1,"ab":null,"abc":true})", R"({"":true,"b":false,"a":1})", R"({"\u0061b":null,"\u0061bc":true})",
           R"({"a\n":true,"a":1})", R"({"ac":true,"ac":true})"},
          {R"({"a":true})", R"({"ab":1})", R"({"abc":null})", R"({"a":1,"a":1})", R"({"a":1,"\u0061":true})",
           R"({"a":1,"\u0061":1})", R"({"\u0061\u0062":true})"}});
  const GrammarPtr grammar = compile_json_schema(R"({"anyOf": [
      {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
      {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "null"}}, "minProperties": 2}]})");
  EXPECT_TRUE(accepts(grammar, R"({"a":1})"));
  EXPECT_TRUE(accepts(grammar, R"({"a":null,"b":1})"));
  EXPECT_FALSE(accepts(grammar, R"({"a":null})"));
  EXPECT_FALSE(accepts(grammar, R"({"a":1,"b":1})"));
}

TEST(JsonObjects, NamesAndStringsMayUseEveryEscape) {
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
  // No escape may begin inside a multi-byte character.
  expect({R"({"type": "string", "minLength": 1})",
          {R"("\u0000")", R"("\u001F")"},
          {"\"\"", "\"\n\"", R"("\ud800")", "\"\xC3\\u00a9\"", "\"\xC3\\n\""}});
}

}  // namespace
}  // namespace ingot::grammar
