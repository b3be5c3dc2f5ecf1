// Each draft of JSON Schema follows its own rules. The texts are written by hand from the specifications.
#include <gtest/gtest.h>

#include <string>

#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

constexpr const char* draft4 = "http://json-schema.org/draft-04/schema#";
constexpr const char* draft6 = "http://json-schema.org/draft-06/schema#";
constexpr const char* draft7 = "http://json-schema.org/draft-07/schema#";
constexpr const char* draft2019 = "https://json-schema.org/draft/2019-09/schema";
constexpr const char* draft2020 = "https://json-schema.org/draft/2020-12/schema";

// The schema with its "$schema" key.
std::string of(const char* draft, const std::string& members) {
  return std::string(R"({"$schema": ")") + draft + "\", " + members + "}";
}

void expect_of(const char* draft, const std::string& members, std::vector<const char*> valid,
               std::vector<const char*> invalid) {
  expect({of(draft, members).c_str(), std::move(valid), std::move(invalid)});
}

// Draft-07, core, section 8.3: "All other properties in a "$ref" object MUST be ignored."
TEST(JsonDrafts, KeywordsBesideRefAreIgnoredUpToDraft7) {
  for (const char* draft : {draft4, draft6, draft7}) {
    expect_of(draft, R"("definitions": {"s": {"type": "string"}}, "not": {"$ref": "#/definitions/s", "maxLength": 3})",
              {"1", "null"}, {"\"abcdef\"", "\"ab\""});
    expect_of(draft, R"("definitions": {"s": {"type": "string"}},
                        "not": {"$id": "http://x/y", "id": "http://x/y", "$ref": "#/definitions/s", "maxLength": 3})",
              {"1"}, {"\"abcdef\"", "\"ab\""});
    expect_of(draft, R"("definitions": {"s": {"type": "string"}},
                        "properties": {"a": {"$ref": "#/definitions/s", "enum": ["x"]}})",
              {R"({"a": "y"})"}, {R"({"a": 1})"});
  }
  for (const char* draft : {draft2019, draft2020}) {
    expect_of(draft, R"("$defs": {"s": {"type": "string"}}, "not": {"$ref": "#/$defs/s", "maxLength": 3})",
              {"1", "\"abcdef\""}, {"\"ab\""});
  }
}

TEST(JsonDrafts, Draft4BoundsAreExclusiveByABoolean) {
  expect_of(draft4, R"("type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 3)", {"1.5", "3"},
            {"1", "1.0", "3.5"});
  expect_of(draft4, R"("type": "number", "minimum": 1, "exclusiveMinimum": false)", {"1"}, {"0.5"});
  expect_of(draft4, R"("type": "integer")", {"1", "-20"}, {"1.0", "1e2", "1.5"});
  expect_of(draft6, R"("type": "number", "exclusiveMinimum": 1)", {"1.5"}, {"1"});
  expect_of(draft6, R"("type": "integer")", {"1", "1.0", "1e2", "1E+02"}, {"1.5", "1e-2", "1.50", "1e-0"});
  EXPECT_EQ(refusal(of(draft4, R"("exclusiveMinimum": 1)")),
            "usage: the schema's #/exclusiveMinimum must be true or false");
  EXPECT_EQ(refusal(of(draft6, R"("minimum": 1, "exclusiveMinimum": true)")),
            "usage: the schema's #/exclusiveMinimum must be a number");
}

TEST(JsonDrafts, KeywordsOfLaterDraftsAreAnnotations) {
  expect_of(draft4, R"("const": 1, "contains": {"const": 1}, "propertyNames": {"maxLength": 1})",
            {"2", "[2]", R"({"ab": 1})"}, {"1 1"});
  expect_of(draft6, R"("const": 1, "if": true, "then": false)", {"1"}, {"2"});
  expect_of(draft6, R"("propertyNames": {"maxLength": 1})", {R"({"a": 1})"}, {R"({"ab": 1})"});
  expect_of(draft7, R"("if": {"type": "string"}, "then": {"maxLength": 1}, "dependentRequired": {"a": ["b"]})",
            {"\"a\"", "1", R"({"a": 1})"}, {"\"ab\""});
  expect_of(draft7, R"("contains": {"type": "null"}, "maxContains": 1)", {"[null, null]"}, {"[]", "[1]"});
  expect_of(draft2019, R"("contains": {"type": "null"}, "maxContains": 1)", {"[null]"}, {"[null, null]"});
  expect_of(draft7, R"("prefixItems": [{"type": "null"}])", {"[1]"}, {"[1"});
}

TEST(JsonDrafts, TuplesUseItemsUpTo2019) {
  for (const char* draft : {draft4, draft6, draft7, draft2019}) {
    expect_of(draft, R"("items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"})",
              {"[]", "[1]", "[1, \"a\"]", "[1, \"a\", null, null]"}, {"[\"a\"]", "[1, 2]", "[1, \"a\", 1]"});
    expect_of(draft, R"("items": [{"type": "integer"}], "additionalItems": false)", {"[1]"}, {"[1, 1]"});
    expect_of(draft, R"("items": {"type": "integer"}, "additionalItems": false)", {"[1, 1]"}, {"[null]"});
    expect_of(draft, R"("additionalItems": false)", {"[1, null]"}, {"[1 1]"});
  }
  const std::string no_tuple = "usage: #/items: a schema must be an object, true or false";
  EXPECT_EQ(refusal(of(draft2020, R"("items": [{"type": "integer"}])")), no_tuple);
  EXPECT_EQ(refusal(R"({"items": [{"type": "integer"}]})"), no_tuple);
}

TEST(JsonDrafts, DependenciesFollowTheDraft) {
  for (const char* draft : {draft4, draft6, draft7, draft2020}) {
    expect_of(draft, R"("dependencies": {"a": ["b"], "c": {"properties": {"d": {"type": "null"}}}})",
              {"{}", R"({"b": 1})", R"({"b": 1, "a": 1})", R"({"a": 1, "b": 1})", R"({"d": null, "c": 1})", "[]"},
              {R"({"a": 1})", R"({"d": 1, "c": 1})", R"({"c": 1, "d": 1})"});
  }
}

TEST(JsonDrafts, IdentifiersFollowTheDraft) {
  expect_of(draft4, R"("id": "http://x/root.json", "$ref": "#/definitions/a",
                       "definitions": {"a": {"id": "http://y/", "type": "null"}})",
            {"null"}, {"1"});
  expect_of(draft4, R"("id": "http://x/root.json", "allOf": [{"$ref": "item.json"}],
                       "definitions": {"a": {"id": "item.json", "type": "null"}, "b": {"$id": "other.json"}})",
            {"null"}, {"1"});
  expect_of(draft4, R"("allOf": [{"$ref": "#here"}], "definitions": {"a": {"id": "#here", "type": "null"}})", {"null"},
            {"1"});
  expect_of(draft7, R"("allOf": [{"$ref": "#here"}], "definitions": {"a": {"$id": "#here", "type": "null"}})", {"null"},
            {"1"});
  expect_of(draft2019, R"("$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}})", {"null"}, {"1"});
  // A property named "id", an identifier in a value, and one where no schema is allowed are not identifiers.
  expect_of(draft7, R"("properties": {"$id": {"type": "null"}}, "required": ["$id"])", {R"({"$id": null})"},
            {R"({"$id": 1})"});
  EXPECT_EQ(refusal(of(draft7, R"("$ref": "y", "enum": [{"$id": "y", "type": "null"}])")),
            "unsupported: #/$ref: the schema does not contain y");
  EXPECT_EQ(refusal(of(draft2020, R"("$ref": "y", "$defs": {"a": {"id": "y"}})")),
            "unsupported: #/$ref: the schema does not contain y");
  EXPECT_EQ(refusal(of(draft2019, R"("$ref": "#y", "$defs": {"a": {"$dynamicAnchor": "y"}})")),
            "unsupported: #/$ref: the schema does not contain #y");
  // Up to draft-07 an identifier beside $ref does not change the base URI.
  expect_of(draft7, R"("$id": "http://x/root.json", "properties": {"a": {"$id": "http://y/z.json", "$ref": "b.json"}},
                       "definitions": {"b": {"$id": "http://x/b.json", "type": "null"},
                                       "c": {"$id": "http://y/b.json", "type": "string"}})",
            {R"({"a": null})"}, {R"({"a": "x"})"});
}

TEST(JsonDrafts, ResolvesDynamicReferences) {
  expect_of(draft2019, R"("properties": {"a": {"$recursiveRef": "#"}}, "additionalProperties": false)",
            {R"({"a": {"a": {}}})"}, {R"({"a": {"b": 1}})", R"({"b": {}})"});
  expect_of(draft2020, R"("$ref": "#/$defs/list", "$defs": {
              "list": {"type": "array", "items": {"$dynamicRef": "#item"}},
              "item": {"$dynamicAnchor": "item", "type": "null"}})",
            {"[]", "[null]"}, {"[1]"});
  // Two resources with the same dynamic anchor: the path of references decides which one is meant.
  EXPECT_EQ(refusal(of(draft2020, R"("$id": "http://x/a", "$ref": "list", "$defs": {
              "item": {"$dynamicAnchor": "item", "type": "string"},
              "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#item"},
                       "$defs": {"item": {"$dynamicAnchor": "item"}}}})")),
            "unsupported: http://x/list#/items/$dynamicRef can refer to several schemas, which is not supported");
}

TEST(JsonDrafts, DraftUriMayBeSpelledInSeveralWays) {
  for (const char* name : {"http://json-schema.org/draft-04/schema", "https://json-schema.org/draft-04/schema#",
                           "json-schema.org/draft-04/schema"}) {
    expect_of(name, R"("maximum": 3, "exclusiveMaximum": true)", {"2"}, {"3"});
  }
  for (const char* name :
       {"http://json-schema.org/draft/2020-12/schema#", "https://json-schema.org/draft/2020-12/schema"}) {
    expect_of(name, R"("prefixItems": [{"type": "null"}])", {"[null]"}, {"[1]"});
  }
  for (const std::string name : {"http://json-schema.org/draft-03/schema#", "http://json-schema.org/schema"}) {
    EXPECT_EQ(refusal(of(name.c_str(), R"("type": "null")")),
              "unsupported: #/$schema is '" + name + "'; draft-04, 06, 07, 2019-09 and 2020-12 are supported");
  }
  // A subschema of another draft.
  expect_of(draft2020, R"("properties": {"a": {"$id": "a", "$schema": "http://json-schema.org/draft-07/schema#",
                          "items": [{"type": "null"}]}}, "prefixItems": [{"type": "null"}])",
            {R"({"a": [null]})", "[null]"}, {R"({"a": [1]})", "[1]"});
}

TEST(JsonDrafts, UnknownKeywordsAreListedOrErrorsWhenStrict) {
  const std::string schema = R"({"x-order": 1, "type": "object", "example": {"y": 1}, "title": "t",
      "properties": {"a": {"type": "string", "format": "colour", "readonly": true}}, "exclusiveMinimumm": 2})";
  std::vector<std::string> unknown;
  EXPECT_NE(compile_json_schema(schema, {}, &unknown), nullptr);
  EXPECT_EQ(unknown, (std::vector<std::string>{"#/x-order", "#/example", "#/exclusiveMinimumm", "#/properties/a/format",
                                               "#/properties/a/readonly"}));
  EXPECT_EQ(refusal(schema, {.strict = true}), "unsupported: #/x-order is not known");
  EXPECT_EQ(refusal(R"({"type": "string", "format": "date", "title": "t"})", {.strict = true}), "none");
  // An annotation has no effect, and its value is not examined.
  expect({R"({"x-type": {"type": 7}, "examples": [{"$ref": "nowhere"}], "type": "null"})", {"null"}, {"1"}});
}

TEST(JsonDrafts, AnnotationsFollowTheDraft) {
  const char* const drafts[] = {draft4, draft6, draft7, draft2019, draft2020};
  struct Range {
    const char* member;
    size_t first, last;  // of the drafts that define it
  };
  for (const Range& range : std::vector<Range>{
           {R"("title": "t", "description": "d", "default": 1, "definitions": {})", 0, 4},
           {R"("id": "http://x/y")", 0, 0},
           {R"("$id": "http://x/y")", 1, 4},
           {R"("examples": [1])", 1, 4},
           {R"("$comment": "c")", 2, 4},
           {R"("readOnly": true)", 2, 4},
           {R"("writeOnly": true)", 2, 4},
           {R"("contentEncoding": "base64")", 2, 4},
           {R"("contentMediaType": "text/plain")", 2, 4},
           {R"("contentSchema": {})", 3, 4},
           {R"("deprecated": true)", 3, 4},
           {R"("$defs": {})", 3, 4},
           {R"("$vocabulary": {})", 3, 4},
           {R"("$anchor": "a")", 3, 4},
           {R"("$recursiveAnchor": true)", 3, 3},
           {R"("$dynamicAnchor": "a")", 4, 4},
       }) {
    for (size_t i = 0; i < std::size(drafts); ++i) {
      const std::string schema = of(drafts[i], range.member);
      const bool is_known = i >= range.first && i <= range.last;
      std::vector<std::string> unknown;
      EXPECT_NE(compile_json_schema(schema, {}, &unknown), nullptr);
      EXPECT_EQ(unknown.empty(), is_known) << schema;
      EXPECT_EQ(refusal(schema, {.strict = true}) == "none", is_known) << schema;
    }
  }
  EXPECT_EQ(refusal(of(draft2020, R"("$anchor": 1)")), "usage: the schema's #/$anchor must be a string");
  EXPECT_EQ(refusal(of(draft7, R"("$anchor": 1)")), "none");
  // Formats do not differ between drafts.
  EXPECT_EQ(refusal(of(draft4, R"("format": "uuid")"), {.strict = true}), "none");
}

}  // namespace
}  // namespace ingot::grammar
