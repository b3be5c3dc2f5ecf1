// Calls of tools in a text that comes in pieces.
#include "server/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ingot::server {
namespace {

struct Read {
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Read&) const = default;
};

// The same whether the output comes at once or a byte at a time.
Read read(ToolForm form, const std::string& output) {
  const auto run = [&](size_t step) {
    ToolReader reader(form, {"f", "g"});
    Read out;
    for (size_t at = 0; at < output.size(); at += step) out.text += reader.push(output.substr(at, step));
    out.text += reader.finish();
    for (const ToolCall& call : reader.calls()) out.calls.emplace_back(call.name, call.arguments);
    return out;
  };
  const Read whole = run(output.size() + 1);
  EXPECT_EQ(run(1), whole) << output;
  EXPECT_EQ(run(3), whole) << output;
  return whole;
}

TEST(ToolReader, None) { EXPECT_EQ(read(ToolForm::none, R"({"name":"f"})").text, R"({"name":"f"})"); }

TEST(ToolReader, Forced) {
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"f","arguments":{"x": [1, 2]}})"), (Read{"", {{"f", R"({"x":[1,2]})"}}}));
  EXPECT_EQ(read(ToolForm::forced, R"({"name":"f","argum)"), (Read{R"({"name":"f","argum)", {}}));
}

TEST(ToolReader, Tagged) {
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

TEST(ToolReader, Whole) {
  EXPECT_EQ(read(ToolForm::whole, R"( {"name": "f", "parameters": {"x": 1}})"), (Read{"", {{"f", R"({"x":1})"}}}));
  EXPECT_EQ(read(ToolForm::whole, R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}])"),
            (Read{"", {{"f", "{}"}, {"g", "{}"}}}));
  for (const char* text : {"", " ", "text", "  text {", R"({"name": "h", "arguments": {}})", R"({"answer": 1})", "[]",
                           R"({"name": "f", "arguments": "x"})", R"({"name": "f"})", "{"}) {
    EXPECT_EQ(read(ToolForm::whole, text), (Read{text, {}})) << text;
  }
}

TEST(ToolReader, Schemas) {
  const auto json = nlohmann::json::parse(call_schema({{"f", R"({"type":"object"})"}, {"g", "{}"}}));
  ASSERT_EQ(json["anyOf"].size(), 2U);
  EXPECT_EQ(json["anyOf"][0]["properties"]["name"]["const"], "f");
  EXPECT_EQ(json["anyOf"][0]["required"], nlohmann::json::array({"name", "arguments"}));
  EXPECT_EQ(json["anyOf"][0]["additionalProperties"], false);
}

}  // namespace
}  // namespace ingot::server
