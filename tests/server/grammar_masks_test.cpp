// Constraints with grammar masks, as `ingot serve` applies them.
#include <gtest/gtest.h>

#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TinySettings with_grammars() {
  TinySettings settings;
  settings.grammars = true;
  return settings;
}

// Requires a call of tool `f` whose argument x is true. The model prefers the given letters.
Json demanding(TinyServer& server, const std::string& letters, const Json& more) {
  Json bias = Json::object();
  for (const char* space : {" ", "\n"}) bias[std::to_string(server.tokenizer->encode(space)[0])] = -100;
  for (const char letter : letters) {
    bias[std::to_string(server.tokenizer->encode(std::string(1, letter))[0])] = 100;
  }
  Json function = {{"name", "f"},
                   {"parameters",
                    {{"type", "object"},
                     {"properties", {{"x", {{"const", true}}}}},
                     {"required", {"x"}},
                     {"additionalProperties", false}}}};
  function["parameters"].update(more);
  return {{"model", "org/tiny"},
          {"messages", {{{"role", "user"}, {"content", "x"}}}},
          {"tools", {{{"type", "function"}, {"function", function}}}},
          {"tool_choice", "required"},
          {"temperature", 0},
          {"logit_bias", bias}};
}

TEST(GrammarMasks, ARequiredCallHasItsNameFirst) {
  TinyServer server(with_grammars());
  // The model would prefer "arguments" before "name" if it were allowed.
  for (const char* letters : {"a", "n"}) {
    const Json reply = server.post("/v1/chat/completions", demanding(server, letters, Json::object()));
    const Json& choice = reply["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << reply;
    ASSERT_EQ(choice["message"].value("tool_calls", Json::array()).size(), 1U) << reply;
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "f");
    EXPECT_EQ(Json::parse(function["arguments"].get<std::string>()), (Json{{"x", true}}));
  }
}

TEST(GrammarMasks, AnUnknownKeywordOfAStrictToolIsAnError) {
  TinyServer server(with_grammars());
  Json body = demanding(server, "", {{"x-note", 1}});
  server.post("/v1/chat/completions", body);
  body["tools"][0]["function"]["strict"] = true;
  const Json error = server.post("/v1/chat/completions", body, 400)["error"];
  EXPECT_EQ(error["param"], "tools");
  EXPECT_NE(error["message"].get<std::string>().find("x-note"), std::string::npos) << error;

  Json tool = body["tools"][0]["function"];
  tool["type"] = "function";
  Json items = {{"model", "org/tiny"}, {"input", "x"}, {"tools", {tool}}, {"tool_choice", "required"}};
  EXPECT_EQ(server.post("/v1/responses", items, 400)["error"]["param"], "tools");
  items["tools"][0]["strict"] = false;
  server.post("/v1/responses", items);
}

}  // namespace
}  // namespace ingot::server
