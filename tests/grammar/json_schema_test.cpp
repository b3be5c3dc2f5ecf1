#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

TEST(JsonSchema, AcceptsTypesAndUnconstrainedValues) {
  expect({"true",
          {"null", "true", "-0", "-1.5e3", "\"a\\u00e9\\n\xC3\xA9\\ud83d\\ude00\"", "[]", "[1, {\"a\": [null]}]", "{}",
           "{\n  \"a\": 1\n}"},
          {"", "nul", "01", "1.", "\"\n\"", "\"\\ud83d\"", "\"\xC3\"", "[1,]", "{\"a\"}", "{\"a\":1,}", "1 2"}});
  // A constrained number has fewer spellings: negative zero is not one.
  expect({R"({"type": "integer"})", {"0", "-7", "123"}, {"1.5", "1e-2", "\"1\"", "-0", "00"}});
  expect({R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1", "true", "{}"}});
}

TEST(JsonSchema, PropertiesOccurOnce) {
  expect(
      {R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "boolean"}}, "required": ["a"]})",
       {R"({"b": 1, "a": true})", R"({"a": true, "b": 1})", R"({"x": 2, "b": 1, "y": 3, "a": true})", R"({"a":false})",
        R"({"a": true, "x": [1]})", R"({"a": true, "x": 1, "x": 2})", "{\n    \"b\": 1,\n    \"a\": true\n}"},
       {"{}", R"({"b": 1})", R"({"a": 1})", R"({"a": true, "b": "x"})", R"({"a": true, "a": 1})",
        R"({"a": true, "\u0061": 1})"}});
  expect({R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false})",
          {"{}", R"({"a": 1})"},
          {R"({"b": 1})", R"({"a": 1, "b": 2})", R"({"a": 1, "a": 2})", R"({"a": 1, "\u0061": 2})"}});
  expect({R"({"type": "object", "patternProperties": {"^n": {"type": "number"}, "s$": {"minimum": 5}},
              "additionalProperties": {"type": "string"}})",
          {R"({"n": 1, "ns": 7, "x": "y"})", "{}"},
          {R"({"n": "1"})", R"({"ns": 4})", R"({"x": 1})", R"({"xs": 1})"}});
}

TEST(JsonSchema, PropertyCountsAreEnforced) {
  expect({R"({"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": {"type": "integer"}})",
          {R"({"a": 1, "b": 2})", R"({"a": 1, "b": 2, "c": 3})"},
          {"{}", R"({"a": 1})", R"({"a": 1, "a": 2})", R"({"a": 1, "b": 2, "c": 3, "d": 4})"}});
  expect({R"({"type": "object", "properties": {"p": {}, "q": {}}, "minProperties": 1, "maxProperties": 1})",
          {R"({"p": 1})", R"({"q": 1})", R"({"x": 1})"},
          {"{}", R"({"p": 1, "q": 2})", R"({"p": 1, "x": 2})"}});
  expect({R"({"type": "object", "propertyNames": {"maxLength": 2}})", {R"({"ab": 1})"}, {R"({"abc": 1})"}});
  expect({R"({"type": "object", "dependentRequired": {"a": ["b"]}})",
          {"{}", R"({"b": 1})", R"({"a": 1, "b": 2})"},
          {R"({"a": 1})", R"({"a": 1, "c": 2})"}});
}

TEST(JsonSchema, ArraysFollowItemsAndCounts) {
  expect({R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
          {"[1]", "[1,2]", "[1, 2, 3]"},
          {"[]", "[1,2,3,4]", "[\"a\"]", "[1 2]"}});
  expect({R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false})",
          {"[]", "[\"a\"]", "[\"a\", 1]"},
          {"[1]", "[\"a\", 1, 2]"}});
  expect(
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "items": {"type": "null"}})",
       {"[\"a\", 1]", "[\"a\", 1, null, null]"},
       {"[]", "[\"a\"]", "[\"a\", 1, 2]"}});
  expect(
      {R"({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "maxContains": 2, "minContains": 1})",
       {"[5]", "[1, 7, 2, 9]"},
       {"[]", "[1, 2]", "[5, 6, 7]"}});
}

TEST(JsonSchema, CountedPropertiesMayHaveManyNames) {
  std::string many = R"({"type": "object", "minProperties": 1, "additionalProperties": false, "properties": {)";
  for (int i = 0; i < 24'000; ++i) many += fmt::format(R"({}"{}": {{}})", i == 0 ? "" : ",", i);
  EXPECT_EQ(refusal(many + "}}"), "resource: an object has 24000 properties; at most 10000 are supported");
  expect({R"({"type": "object", "properties": {"p": {}, "q": {}, "r": {}}, "required": ["q"], "minProperties": 2})",
          {R"({"p":1,"q":2})", R"({"q":1,"r":2})", R"({"q":1,"s":2})", R"({"p":1,"q":1,"r":2,"s":3})"},
          {R"({"q":1})", R"({"p":1,"r":2})", R"({"p":1})"}});
  expect({R"({"type": "object", "properties": {"p": {}, "q": {}}, "required": ["p", "q"], "maxProperties": 3})",
          {R"({"p":1,"q":2})", R"({"p":1,"q":2,"x":3})"},
          {R"({"p":1})", R"({"p":1,"q":2,"x":3,"y":4})"}});
}

TEST(JsonSchema, UniqueItemsCompareValues) {
  expect({R"({"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": true, "minItems": 2})",
          {R"(["a", "b"])", R"([1, "b", "a"])"},
          {R"(["a"])", R"(["a", "a"])", R"(["a", "b", "a"])", R"(["a", "b", 1, 1])"}});
  expect({R"({"type": "array", "items": {"type": "number"}, "uniqueItems": true})",
          {"[]", "[1, 2.5, 25]"},
          {"[1, 1]", "[1, 1.0]", "[2.5, 2.50]", "[0, -0]", "[1, 1e0]"}});
  expect({R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
          {R"(["a", "aa", ""])"},
          {R"(["a", "b", "a"])", R"(["a", "\u0061"])", R"(["", ""])"}});
  EXPECT_EQ(refusal(R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true, "minItems": 3})"),
            "usage: no value satisfies the schema");
  // There are few strings of each length.
  const auto different = [](const char* pattern, int min) {
    return fmt::format(
        R"({{"type": "array", "items": {{"type": "string", "pattern": "{}"}}, "uniqueItems": true, "minItems": {}}})",
        pattern, min);
  };
  EXPECT_EQ(refusal(different("^a{5000}$", 2)), "usage: no value satisfies the schema");
  EXPECT_EQ(refusal(different("^a{50000}$", 2)),
            "resource: cannot count the possible values of property names or array items that must be distinct: they "
            "are too long");
  EXPECT_EQ(refusal(different("^(a{500})*$", 1000)), "none");
  EXPECT_EQ(refusal(different("^(a{500}){0,8}$", 9)), "none");
  EXPECT_EQ(refusal(different("^(a{500}){0,8}$", 10)), "usage: no value satisfies the schema");
}

TEST(JsonSchema, NumberRangesAreEnforced) {
  expect({R"({"type": "integer", "minimum": -5, "exclusiveMaximum": 120})",
          {"-5", "0", "119", "99"},
          {"-6", "120", "1000", "-10", "1.5"}});
  expect({R"({"type": "number", "exclusiveMinimum": 0.5, "maximum": 2.25})",
          {"0.51", "0.5000001", "1", "2.25", "2.250", "1.0", "1e0", "2.25E+0", "5.1e-1"},
          {"0.5", "0.50", "0", "2.2501", "2.3", "3", "-1", "10", "5e-1", "2.26e0", "1e1", "-1e0"}});
  // With 16 digits, two numerals can be the same double: 9999999999999999 is 1e16.
  expect({R"({"type": "number", "exclusiveMaximum": 1e16})",
          {"999999999999999", "-99999999999999.9", "0.12345678901234", "9.9e15"},
          {"9999999999999999", "-9999999999999999", "1000000000000000", "0.123456789012345", "1e16"}});
  const std::string digits(36, '1');
  expect({R"({"type": "number", "minimum": 1})",
          {digits.c_str(), "1.11111111111111111111111111111111111"},
          {(digits + "1").c_str(), "1.111111111111111111111111111111111111"}});
  expect({R"({"type": "number", "maximum": -1.5})", {"-1.5", "-2", "-100.25"}, {"-1.4", "0", "1.5", "-1", "-0"}});
  expect({R"({"type": "integer", "multipleOf": 7, "minimum": 10})", {"14", "700"}, {"7", "15", "10"}});
  expect({R"({"type": "number", "multipleOf": 0.01})",
          {"0.01", "19.99", "5", "2.5", "2.50", "1.010"},
          {"0.001", "19.995"}});
  expect({R"({"enum": [1, 2.5, -3]})", {"1", "2.5", "-3", "1.0", "2.50"}, {"2", "3", "12", "25", "1.01", "-3.5"}});
}

TEST(JsonSchema, StringsFollowLengthAndPattern) {
  expect({R"({"type": "string", "minLength": 2, "maxLength": 3})",
          {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80x\"", "\"\\n\\\"\""},
          {"\"a\"", "\"abcd\"", "\"\xC3\xA9\"", "\"\""}});
  expect({R"({"type": "string", "pattern": "^[A-Z]{2}\\d+$"})",
          {"\"AB1\"", "\"XY123\""},
          {"\"A1\"", "\"AB\"", "\"AB1x\"", "\"ab1\""}});
  expect({R"({"type": "string", "pattern": "b+"})", {"\"abba\"", "\"b\""}, {"\"aca\"", "\"\""}});
  expect({R"({"type": "string", "pattern": "^(?!foo)\\w+(a|b)$", "maxLength": 5})",
          {"\"barb\"", "\"foa\""},
          {"\"fooa\"", "\"bar\"", "\"xxxxxa\""}});
  expect({R"({"enum": ["a\"b", "\u00e9", "x"]})", {"\"a\\\"b\"", "\"\xC3\xA9\"", "\"x\""}, {"\"a\"", "\"y\""}});
}

TEST(JsonSchema, StringFormatsAreEnforced) {
  expect({R"({"type": "string", "format": "date"})",
          {"\"2024-02-29\"", "\"1999-12-31\""},
          {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"0000-01-01\""}});
  expect({R"({"type": "string", "format": "date-time"})",
          {"\"2024-02-29T12:00:00Z\"", "\"2000-02-29T23:59:59.5+01:30\""},
          {"\"2024-02-29 12:00:00Z\"", "\"2024-02-29T24:00:00Z\"", "\"2024-02-29T12:00:00\""}});
  expect({R"({"type": "string", "format": "ipv4"})",
          {"\"1.2.3.4\"", "\"255.255.255.255\""},
          {"\"256.1.1.1\"", "\"01.2.3.4\"", "\"1.2.3\""}});
  expect({R"({"type": "string", "format": "ipv6"})",
          {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"1::8\"", "\"::ffff:1.2.3.4\"", "\"1:2:3:4:5:6:7::\""},
          {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\"", "\":::\""}});
  expect({R"({"type": "string", "format": "uuid"})",
          {"\"123e4567-e89b-12d3-a456-426614174000\""},
          {"\"123e4567-e89b-12d3-a456-42661417400\""}});
  expect(
      {R"({"type": "string", "format": "email"})", {"\"a.b@c.de\""}, {"\"a\"", "\"a@\"", "\".a@b.c\"", "\"a@-b.c\""}});
  expect({R"({"type": "string", "format": "uri"})",
          {"\"https://a.b/c?d=e#f\"", "\"urn:x:y\""},
          {"\"a/b\"", "\"http://a b\"", "\"://x\""}});
}

TEST(JsonSchema, CombinesSchemas) {
  expect({R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
          {"1", "\"a\""},
          {"1.5", "\"ab\"", "null"}});
  expect({R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                        {"properties": {"a": {"minimum": 3}, "b": {"type": "null"}}}]})",
          {R"({"a": 3})", R"({"a": 4, "b": null})"},
          {R"({"a": 2})", "{}", R"({"a": 4, "b": 1})", "[]"}});
  expect({R"({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]})", {"1", "2.5"}, {"3", "1.5"}});
  expect({R"({"not": {"type": "string"}, "type": ["string", "integer"]})", {"5"}, {"\"a\""}});
  expect({R"({"type": "string", "not": {"enum": ["a", "b"]}})", {"\"c\"", "\"aa\"", "\"\""}, {"\"a\"", "\"b\""}});
  expect({R"({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "v": {}}, "required": ["k", "v"],
              "if": {"properties": {"k": {"const": "x"}}}, "then": {"properties": {"v": {"type": "integer"}}},
              "else": {"properties": {"v": {"type": "string"}}}})",
          {R"({"k": "x", "v": 1})", R"({"k": "y", "v": "s"})"},
          {R"({"k": "x", "v": "s"})", R"({"k": "y", "v": 1})", R"({"k": "z", "v": 1})"}});
  expect(
      {R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "a"}, "n": {"type": "integer"}}, "required": ["t", "n"]},
                        {"type": "object", "properties": {"t": {"const": "b"}, "s": {"type": "string"}}, "required": ["t"]}]})",
       {R"({"t": "a", "n": 1})", R"({"t": "b", "s": "x"})"},
       {R"({"t": "a", "s": "x"})", R"({"t": "c"})", "{}"}});
  expect(
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object", "additionalProperties": {"type": "integer"}})",
       {R"({"a": 1})", R"({"b": 1})", R"({"b": 1, "c": 2})"},
       {"{}", R"({"a": 1, "b": 2})", R"({"c": 1})"}});
}

TEST(JsonSchema, ErrorsNameTheKeywordAndItsPlace) {
  EXPECT_EQ(refusal(R"({"properties": {"a/b": {"$dynamicRef": "#x"}}})"),
            "unsupported: #/properties/a~1b/$dynamicRef: the schema does not contain #x");
  EXPECT_EQ(refusal(R"({"items": {"colour": 1}})", {.strict = true}), "unsupported: #/items/colour is not known");
  EXPECT_EQ(refusal(R"({"items": {"colour": 1}})"), "none");
  EXPECT_EQ(refusal(R"({"type": "string", "format": "colour"})", {.strict = true}),
            "unsupported: #/format is not known");
  EXPECT_EQ(refusal(R"({"$schema": "http://x/y"})"),
            "unsupported: #/$schema is 'http://x/y'; draft-04, 06, 07, 2019-09 and 2020-12 are supported");
  EXPECT_EQ(refusal(R"({"$ref": "http://x/y"})"), "unsupported: #/$ref: the schema does not contain http://x/y");
  EXPECT_EQ(refusal(R"({"type": "string", "pattern": "(a)\\1"})"),
            "unsupported: #/pattern: the pattern '(a)\\1' has a back-reference, which is not supported");
  EXPECT_EQ(refusal(R"({"not": {"uniqueItems": true}})"),
            "unsupported: #/not/uniqueItems: the negation of this keyword is not supported");
  EXPECT_EQ(refusal(R"({"type": "text"})"),
            "usage: the schema's #/type must be null, boolean, integer, number, string, array or object, or several of "
            "them");
  EXPECT_EQ(refusal(R"({"minLength": -1})"), "usage: the schema's #/minLength must be a non-negative whole number");
  EXPECT_EQ(refusal(R"({"allOf": [{"type": "string"}, {"type": "null"}]})"), "usage: no value satisfies the schema");
  EXPECT_EQ(refusal(R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})"),
            "usage: no value satisfies the schema");
  EXPECT_EQ(refusal(std::string(500, '[')), "usage: the schema is nested deeper than 200 levels");
  EXPECT_EQ(refusal(R"({"type": })"), "usage: the schema is not JSON: error at byte 10");
  EXPECT_EQ(refusal("{\"title\": \"\xFF\"}"), "usage: the schema is not UTF-8: error at byte 12");
  EXPECT_EQ(refusal(R"({"type": "null", "type": "string"})"),
            "usage: the schema is ambiguous: the key \"type\" is written twice");
}

TEST(JsonSchema, WhitespaceIsOptional) {
  const GrammarPtr compact = compile_json_schema("{}", {.whitespace = Whitespace::none});
  EXPECT_TRUE(accepts(compact, R"({"a":[1,2]})"));
  EXPECT_FALSE(accepts(compact, R"({"a": [1,2]})"));
  EXPECT_FALSE(accepts(any_json(), "[1]"));
  EXPECT_TRUE(accepts(any_json(), "{\n\t\"a\": [\n\t\t1,\n\t\t2\n\t]\n}"));
}

TEST(JsonSchema, ResolvesReferencesAndRecursion) {
  expect({R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
              "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
              "required": ["v"], "additionalProperties": false}}})",
          {R"({"v": 1})", R"({"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]})"},
          {R"({"kids": []})", R"({"v": 1, "kids": [{}]})"}});
  expect(
      {R"({"$id": "http://x/root", "$ref": "other#n", "$defs": {"o": {"$id": "other", "$defs": {"m": {"$anchor": "n", "type": "null"}}}}})",
       {"null"},
       {"1"}});
  expect({R"({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": {"const": 1}}})", {"1"}, {"2"}});
}

// Elements must not add nesting levels.
TEST(JsonSchema, LongArrayPrefixesAreAccepted) {
  for (const int size : {100, 15'000}) {
    std::string items = R"({"type": "null"})", nulls = "null";
    for (int i = 1; i < size; ++i) items += R"(, {"type": "null"})";
    for (int i = 1; i < 100; ++i) nulls += ",null";
    const std::string prefix = R"({"type": "array", "prefixItems": [)" + items + "]";
    const GrammarPtr closed = compile_json_schema(prefix + R"(, "items": false})");
    const GrammarPtr open = compile_json_schema(prefix + R"(, "items": {"type": "integer"}})");
    for (const GrammarPtr& grammar : {closed, open}) {
      EXPECT_TRUE(accepts(grammar, "[null]"));
      EXPECT_TRUE(accepts(grammar, "[" + nulls + "]"));
      EXPECT_FALSE(accepts(grammar, "[null,1]"));
    }
    EXPECT_EQ(accepts(closed, "[" + nulls + ",null]"), size > 100);
    EXPECT_EQ(accepts(open, "[" + nulls + ",1]"), size == 100);
    EXPECT_FALSE(accepts(closed, "[" + nulls + ",1]"));
  }
}

// The cost of pending alternatives grows with the product of their numbers.
TEST(JsonSchema, ManyAlternativesAreBounded) {
  const auto all_of = [](int size, const std::string& part) {
    std::string parts = part;
    for (int i = 1; i < size; ++i) parts += ", " + part;
    return R"({"allOf": [)" + parts + "]}";
  };
  expect({all_of(3000, R"({"anyOf": [{"type": "integer"}]})").c_str(), {"1"}, {"\"a\"", "null"}});
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {"d3000": {"type": "null"})";
  for (int i = 0; i < 3000; ++i) {
    chain += fmt::format(R"(, "d{}": {{"anyOf": [false, {{"$ref": "#/$defs/d{}"}}]}})", i, i + 1);
  }
  for (const std::string& schema : {all_of(3000, R"({"anyOf": [false, true]})"), chain + "}}"}) {
    EXPECT_TRUE(refusal(schema).starts_with("resource: ")) << refusal(schema);
  }
}

TEST(JsonSchema, CountedPropertiesThatAcceptNoValueAreErrors) {
  EXPECT_EQ(refusal(R"({"type": "object", "minProperties": 2, "additionalProperties": false,
      "patternProperties": {"^a$": {"$ref": "#/$defs/x"}, "^b$": {"type": "null"}},
      "$defs": {"x": {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/x"}}}}})"),
            "usage: no value satisfies the schema");
}

}  // namespace
}  // namespace ingot::grammar
