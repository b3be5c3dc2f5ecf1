// Parsing tool calls in text that arrives in pieces.
#include "server/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/grammar/texts.h"

namespace ingot::server {
namespace {

struct Read {
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;
  bool cut = false;
  bool operator==(const Read&) const = default;
};

// The result must be the same for the whole output at once and one byte at a time.
Read read(ToolForm form, const std::string& output, const std::vector<std::string>& tools = {"f", "g"}) {
  const auto run = [&](size_t step) {
    ToolReader reader(form, tools);
    Read out;
    for (size_t at = 0; at < output.size(); at += step) out.text += reader.push(output.substr(at, step));
    out.text += reader.finish();
    for (const ToolCall& call : reader.calls()) out.calls.emplace_back(call.name, call.arguments);
    out.cut = reader.cut();
    return out;
  };
  const Read whole = run(output.size() + 1);
  EXPECT_EQ(run(1), whole) << output;
  EXPECT_EQ(run(3), whole) << output;
  return whole;
}

TEST(ToolReader, WithoutToolsTextIsUnchanged) {
  EXPECT_EQ(read(ToolForm::none, R"({"name":"f"})").text, R"({"name":"f"})");
}

TEST(ToolReader, ReadsForcedCalls) {
  for (const char* arguments :
       {R"({"x": [1, 2]})", R"({"}": "{\"\\"})", R"({"x":1,"x":123456789012345678901})", "{}"}) {
    const std::string output = std::string(R"({"name":"f","arguments":)") + arguments + "}";
    EXPECT_EQ(read(ToolForm::forced, output), (Read{"", {{"f", arguments}}}));
  }
  EXPECT_EQ(read(ToolForm::forced, "{\n \"name\" : \"g\" , \"arguments\" : {} }"), (Read{"", {{"g", "{}"}}}));
  // More nesting levels than a client may send.
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"f","arguments":{"x":)" + deep + "}}"),
            (Read{"", {{"f", R"({"x":)" + deep + "}"}}}));
}

// A mask may let any character of a key be escaped.
TEST(ToolReader, ReadsForcedCallsWithEscapes) {
  EXPECT_EQ(read(ToolForm::forced, R"({"n\u0061me":"\u0066","argument\u0073":{"x":1}})"),
            (Read{"", {{"f", R"({"x":1})"}}}));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"\ud83d\ude00/","arguments":{}})", {"f", "\xF0\x9F\x98\x80/"}),
            (Read{"", {{"\xF0\x9F\x98\x80/", "{}"}}}));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"\u006)", {"look"}), (Read{"", {{"look", ""}}, true}));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"pai\)", {"look", "paint"}), (Read{"", {{"paint", ""}}, true}));
  EXPECT_EQ(read(ToolForm::forced, R"({"na\u006d)", {"look"}), (Read{"", {{"look", ""}}, true}));
}

TEST(ToolReader, ReadsTruncatedForcedCalls) {
  const auto cut = [](const char* name, const char* arguments) { return Read{"", {{name, arguments}}, true}; };
  for (const char* arguments : {"", "{", R"({"x":)", R"({"x":"}})", R"({"x":"\"}})", R"({"x":"\\"})", R"({"x":1})"}) {
    const std::string output = std::string(R"({"name":"f","arguments":)") + arguments;
    EXPECT_EQ(read(ToolForm::forced, output), cut("f", arguments)) << output;
  }
  EXPECT_EQ(read(ToolForm::forced, R"({ "name": "f", "argum)"), cut("f", ""));
  // With only one tool the name is known before it is complete.
  const std::vector<std::string> tools = {"look", "look_up", "paint"};
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"pa)", tools), cut("paint", ""));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"look")", tools), cut("look", ""));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"look_)", tools), cut("look_up", ""));
  for (const char* output : {"", "{", R"({"name":"look)"}) {
    EXPECT_EQ(read(ToolForm::forced, output, tools), (Read{output, {}, true})) << output;
    EXPECT_EQ(read(ToolForm::forced, output, {"look_up"}), cut("look_up", "")) << output;
  }
}

TEST(ToolReader, ReadsTaggedCalls) {
  const std::string call = R"(<tool_call>
{"name": "f", "arguments": {"x": 1}}
</tool_call>)";
  EXPECT_EQ(read(ToolForm::tagged, call), (Read{"", {{"f", R"({"x":1})"}}}));
  EXPECT_EQ(read(ToolForm::tagged, "Let me see.\n" + call + "\n" + call),
            (Read{"Let me see.\n", {{"f", R"({"x":1})"}, {"f", R"({"x":1})"}}}));
  EXPECT_EQ(read(ToolForm::tagged, R"(<tool_call>{"name": "g", "arguments": {}})"), (Read{"", {{"g", "{}"}}}));
  for (const char* text : {"plain", "a < b and <tool", "<tool_call>not json</tool_call>", "<tool_call>",
                           R"(<tool_call>{"name": "h", "arguments": {}}</tool_call>)",
                           R"(<tool_call>{"name": "f", "arguments": {}}</tool_call> and more)"}) {
    EXPECT_EQ(read(ToolForm::tagged, text), (Read{text, {}})) << text;
  }
}

TEST(ToolReader, ReadsWholeTextCalls) {
  EXPECT_EQ(read(ToolForm::whole, R"( {"name": "f", "parameters": {"x": 1}})"), (Read{"", {{"f", R"({"x":1})"}}}));
  EXPECT_EQ(read(ToolForm::whole, R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}])"),
            (Read{"", {{"f", "{}"}, {"g", "{}"}}}));
  for (const char* text : {"", " ", "text", "  text {", R"({"name": "h", "arguments": {}})", R"({"answer": 1})", "[]",
                           R"({"name": "f", "arguments": "x"})", R"({"name": "f"})", "{"}) {
    EXPECT_EQ(read(ToolForm::whole, text), (Read{text, {}})) << text;
  }
}

TEST(ToolReader, NumberOfCallsIsLimited) {
  const std::string two = R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}])";
  ToolReader reader(ToolForm::whole, {"f", "g"}, 1);
  EXPECT_EQ(reader.push(two) + reader.finish(), "");
  ASSERT_EQ(reader.calls().size(), 1U);
  EXPECT_EQ(reader.calls()[0].name, "f");
}

TEST(ToolReader, SchemasKeepTheirReferences) {
  // Schemas with nested and recursive models in pydantic's form; both tools use the same definition names.
  const std::string nested =
      R"({"$defs":{"X":{"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":false}},
          "type":"object","properties":{"x":{"$ref":"#/$defs/X"}},"required":["x"],"additionalProperties":false})";
  const std::string recursive =
      R"({"$defs":{"X":{"type":"object","properties":{"b":{"$ref":"#/$defs/X"}},"additionalProperties":false}},
          "type":"object","properties":{"x":{"$ref":"#/$defs/X"}},"required":["x"],"additionalProperties":false})";
  const auto accepts = [](const std::string& schema, const std::string& text) {
    return grammar::accepts(grammar::compile_json_schema(schema), text);
  };
  const std::string one = call_schema({{"f", nested}});
  EXPECT_TRUE(accepts(one, R"({"name":"f","arguments":{"x":{"a":1}}})"));
  EXPECT_FALSE(accepts(one, R"({"name":"f","arguments":{"x":{"a":2}}})"));
  const std::string both = call_schema({{"f", nested}, {"g", recursive}});
  EXPECT_TRUE(accepts(both, R"({"name":"f","arguments":{"x":{"a":1}}})"));
  EXPECT_TRUE(accepts(both, R"({"name":"g","arguments":{"x":{"b":{"b":{}}}}})"));
  EXPECT_FALSE(accepts(both, R"({"name":"f","arguments":{"x":{"b":{}}}})"));
  EXPECT_FALSE(accepts(both, R"({"name":"g","arguments":{"x":{"a":1}}})"));
}

// "#/definitions" of a draft-04 schema refers to its own root.
TEST(ToolReader, SchemasOfAnOldDraftKeepTheirReferences) {
  const std::string old =
      R"({"$schema":"http://json-schema.org/draft-04/schema#","definitions":{"one":{"enum":[1]}},"type":"object",
          "properties":{"x":{"$ref":"#/definitions/one"}},"required":["x"],"additionalProperties":false})";
  const grammar::GrammarPtr grammar = grammar::compile_json_schema(call_schema({{"f", old}}), {.strict = true});
  EXPECT_TRUE(grammar::accepts(grammar, R"({"name":"f","arguments":{"x":1}})"));
  EXPECT_FALSE(grammar::accepts(grammar, R"({"name":"f","arguments":{"x":2}})"));
}

TEST(ToolReader, BuildsSchemasForCalls) {
  const auto json = nlohmann::json::parse(call_schema({{"f", R"({"type":"object"})"}, {"g", "{}"}}));
  ASSERT_EQ(json["anyOf"].size(), 2U);
  EXPECT_EQ(json["anyOf"][0]["properties"]["name"]["const"], "f");
  EXPECT_EQ(json["anyOf"][0]["required"], nlohmann::json::array({"name", "arguments"}));
  EXPECT_EQ(json["anyOf"][0]["additionalProperties"], false);
}

}  // namespace
}  // namespace ingot::server
