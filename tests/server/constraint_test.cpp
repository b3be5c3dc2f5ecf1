// Output constraints in the forms of OpenAI's and vLLM's clients: parsing, errors, and outputs that satisfy them.
#include "server/constraint.h"

#include <gtest/gtest.h>

#include "server/api_error.h"
#include "server/requests.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

using Kind = Constraint::Kind;

std::string chat_with(const std::string& members) {
  return R"({"model": "m", "messages": [{"role": "user", "content": "x"}], )" + members + "}";
}

TEST(Constraints, AcceptsEveryForm) {
  struct Case {
    const char* members;
    Constraint constraint;
    const char* param;
  };
  const Case cases[] = {
      {R"("guided_json": {"type": "null"})", {Kind::json_schema, R"({"type":"null"})", {}}, "guided_json"},
      {R"("guided_json": "{\"type\": \"null\"}")", {Kind::json_schema, R"({"type": "null"})", {}}, "guided_json"},
      {R"("guided_regex": "a+", "guided_decoding_backend": "auto")", {Kind::regex, "a+", {}}, "guided_regex"},
      {R"("guided_grammar": "root ::= \"a\"")", {Kind::grammar, "root ::= \"a\"", {}}, "guided_grammar"},
      {R"("guided_choice": ["a", "b"])", {Kind::choice, "", {"a", "b"}}, "guided_choice"},
      {R"("guided_json_object": true)", {Kind::json_object, "", {}}, "guided_json_object"},
      {R"("guided_json_object": false)", {}, "response_format"},
      {R"("structured_outputs": {"json": {"type": "null"}})",
       {Kind::json_schema, R"({"type":"null"})", {}},
       "structured_outputs.json"},
      {R"("structured_outputs": {"regex": "a+", "disable_fallback": true})",
       {Kind::regex, "a+", {}},
       "structured_outputs.regex"},
      {R"("structured_outputs": {"grammar": "root ::= \"a\"", "json": null})",
       {Kind::grammar, "root ::= \"a\"", {}},
       "structured_outputs.grammar"},
      {R"("structured_outputs": {"choice": ["a"]})", {Kind::choice, "", {"a"}}, "structured_outputs.choice"},
      {R"("structured_outputs": {"json_object": true})", {Kind::json_object, "", {}}, "structured_outputs.json_object"},
      {R"("response_format": {"type": "regex", "regex": "a+"})", {Kind::regex, "a+", {}}, "response_format"},
      {R"("response_format": {"type": "grammar", "grammar": "root ::= \"a\""})",
       {Kind::grammar, "root ::= \"a\"", {}},
       "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"x": 1}, "strict": true}})",
       {Kind::json_schema, R"({"x":1})", {}, true, false},
       "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "in_order": true}})",
       {Kind::json_schema, "{}", {}, false, true},
       "response_format"},
      {R"("response_format": {"type": "text"}, "guided_regex": "b")", {Kind::regex, "b", {}}, "guided_regex"},
  };
  for (const Case& c : cases) {
    const ChatRequest chat = parse_chat(chat_with(c.members));
    EXPECT_EQ(chat.format.constraint, c.constraint) << c.members;
    EXPECT_EQ(chat.format.param, c.param) << c.members;
    const CompletionRequest plain =
        parse_completion(std::string(R"({"model": "m", "prompt": "x", )") + c.members + "}");
    EXPECT_EQ(plain.format.constraint, c.constraint) << c.members;
  }
}

// Each kind has its own size limit, which the error states.
TEST(Constraints, SizeIsLimitedByKind) {
  struct Case {
    const char* begin;
    const char* end;
    size_t most;
    const char* message;
  };
  const Case cases[] = {
      {R"("guided_regex": ")", "\"", 65'536, "'guided_regex' must have from 1 to 65536 bytes."},
      {R"("structured_outputs": {"regex": ")", "\"}", 65'536,
       "'structured_outputs.regex' must have from 1 to 65536 bytes."},
      {R"("response_format": {"type": "regex", "regex": ")", "\"}", 65'536,
       "'response_format.regex' must have from 1 to 65536 bytes."},
      {R"("guided_grammar": ")", "\"", 262'144, "'guided_grammar' must have from 1 to 262144 bytes."},
      {R"("response_format": {"type": "grammar", "grammar": ")", "\"}", 262'144,
       "'response_format.grammar' must have from 1 to 262144 bytes."},
      {R"("guided_choice": ["a", ")", "\"]", 262'143,
       "The texts of 'guided_choice' have 262145 bytes; at most 262144."},
  };
  for (const Case& c : cases) {
    EXPECT_NO_THROW(parse_chat(chat_with(c.begin + std::string(c.most, 'a') + c.end))) << c.begin;
    try {
      parse_chat(chat_with(c.begin + std::string(c.most + 1, 'a') + c.end));
      ADD_FAILURE() << c.begin << " was accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(std::string(error.what()), c.message);
    }
  }
}

TEST(Constraints, InvalidConstraintsAreErrors) {
  struct Case {
    const char* members;
    const char* param;
    const char* code;
  };
  const std::string many = "\"guided_choice\": [" + [] {
    std::string list = "\"a\"";
    for (int i = 0; i < 4096; ++i) list += ",\"a\"";
    return list;
  }() + "]";
  const std::string large = "\"guided_choice\": [\"" + std::string(300'000, 'a') + "\"]";
  const Case cases[] = {
      {R"("guided_regex": "a", "guided_choice": ["a"])", "guided_choice", "invalid_value"},
      {R"("guided_regex": "a", "response_format": {"type": "json_object"})", "guided_regex", "invalid_value"},
      {R"("structured_outputs": {"regex": "a", "choice": ["a"]})", "structured_outputs.choice", "invalid_value"},
      {R"("structured_outputs": {})", "structured_outputs", "invalid_value"},
      {R"("structured_outputs": {"json_object": false})", "structured_outputs", "invalid_value"},
      {R"("structured_outputs": {"structural_tag": "{}"})", "structured_outputs.structural_tag",
       "unsupported_parameter"},
      {R"("structured_outputs": "a")", "structured_outputs", "invalid_type"},
      {R"("guided_regex": "")", "guided_regex", "invalid_value"},
      {R"("guided_regex": 7)", "guided_regex", "invalid_type"},
      {R"("guided_choice": [])", "guided_choice", "invalid_value"},
      {R"("guided_choice": [1])", "guided_choice[0]", "invalid_type"},
      {R"("guided_choice": "a")", "guided_choice", "invalid_type"},
      {many.c_str(), "guided_choice", "invalid_value"},
      {large.c_str(), "guided_choice", "invalid_value"},
      {R"("guided_whitespace_pattern": " ")", "guided_whitespace_pattern", "unsupported_parameter"},
      {R"("response_format": {"type": "regex"})", "response_format.regex", "missing_required_parameter"},
      {R"("response_format": {"type": "regex", "regex": "a", "grammar": "b"})", "response_format.grammar",
       "unsupported_parameter"},
      {R"("response_format": {"type": "structural_tag"})", "response_format.type", "invalid_value"},
      {R"("ignore_eos": true, "guided_regex": "a")", "ignore_eos", "invalid_value"},
      {R"("ignore_eos": 1)", "ignore_eos", "invalid_type"},
      {R"("stop_token_ids": 3)", "stop_token_ids", "invalid_type"},
      {R"("stop_token_ids": [1.5])", "stop_token_ids[0]", "invalid_type"},
      {R"("stop_token_ids": [3, -1])", "stop_token_ids[1]", "invalid_value"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "invalid_type"},
      {R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs.messages", "invalid_value"},
      {R"("chat_template_kwargs": {"add_generation_prompt": false})", "chat_template_kwargs.add_generation_prompt",
       "invalid_value"},
  };
  for (const Case& c : cases) {
    try {
      parse_chat(chat_with(c.members));
      ADD_FAILURE() << c.members << " was accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param, c.param) << std::string(c.members).substr(0, 100);
      EXPECT_EQ(error.code, c.code) << std::string(c.members).substr(0, 100);
    }
  }
}

TEST(Constraints, ConstrainTheOutput) {
  TinyServer server;
  server.masks.text = "abc";
  const Json plain = {{"model", "org/tiny"}, {"prompt", "x"}, {"max_tokens", 50}};
  for (const char* member : {"guided_regex", "guided_grammar", "guided_json"}) {
    Json body = plain;
    body[member] = "abc";
    const Json choice = server.post("/v1/completions", body)["choices"][0];
    EXPECT_EQ(choice["text"], "abc") << member;
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  Json chosen = plain;
  chosen["structured_outputs"] = {{"choice", {"yes", "no"}}};
  EXPECT_EQ(server.post("/v1/completions", chosen)["choices"][0]["text"], "no");
  const auto kinds = server.masks.kinds.lock();
  EXPECT_EQ(*kinds, (std::vector<Kind>{Kind::regex, Kind::grammar, Kind::json_schema, Kind::choice}));
}

TEST(Constraints, ErrorsNameTheirField) {
  TinyServer server;
  const Json body = {{"model", "org/tiny"}, {"prompt", "x"}, {"structured_outputs", {{"regex", "refuse"}}}};
  EXPECT_EQ(server.post("/v1/completions", body, 400)["error"]["param"], "structured_outputs.regex");
  Json forced = {{"model", "org/tiny"},
                 {"messages", {{{"role", "user"}, {"content", "x"}}}},
                 {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
                 {"tool_choice", "required"},
                 {"guided_regex", "a"}};
  EXPECT_EQ(server.post("/v1/chat/completions", forced, 400)["error"]["param"], "guided_regex");
  forced.erase("guided_regex");
  forced["ignore_eos"] = true;
  EXPECT_EQ(server.post("/v1/chat/completions", forced, 400)["error"]["param"], "ignore_eos");
}

TEST(StopIds, EndTheOutputBeforeThem) {
  TinyServer server;
  int tried = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Json body = {{"model", "org/tiny"}, {"prompt", "hello"}, {"max_tokens", 30}, {"temperature", 1.3}, {"seed", seed}};
    const std::string text = server.post("/v1/completions", body)["choices"][0]["text"];
    // Each letter is a token. A letter that did not occur before:
    const size_t at = text.find_last_of("abcdefghijklmnopqrstuvwxyz");
    if (at == std::string::npos || at == 0 || text.find(text[at]) != at) continue;
    body["stop_token_ids"] = {server.tokenizer->encode(text.substr(at, 1))[0]};
    const Json choice = server.post("/v1/completions", body)["choices"][0];
    EXPECT_EQ(choice["text"], text.substr(0, at));
    EXPECT_EQ(choice["finish_reason"], "stop");
    ++tried;
  }
  EXPECT_GT(tried, 2);
  const Json beyond = {{"model", "org/tiny"}, {"prompt", "hello"}, {"stop_token_ids", {131}}};
  EXPECT_EQ(server.post("/v1/completions", beyond, 400)["error"]["param"], "stop_token_ids");
}

TEST(StopIds, TheModelsOwnMayBeIgnored) {
  TinyServer server;
  // The EOS token is the most likely one at every position.
  Json body = {
      {"model", "org/tiny"}, {"prompt", "x"}, {"max_tokens", 7}, {"temperature", 0}, {"logit_bias", {{"2", 100}}}};
  const Json ended = server.post("/v1/completions", body);
  EXPECT_EQ(ended["usage"]["completion_tokens"], 0);
  EXPECT_EQ(ended["choices"][0]["finish_reason"], "stop");
  body["ignore_eos"] = true;
  const Json ignored = server.post("/v1/completions", body);
  EXPECT_EQ(ignored["usage"]["completion_tokens"], 7);
  EXPECT_EQ(ignored["choices"][0]["finish_reason"], "length");
  body["stop_token_ids"] = {2};
  EXPECT_EQ(server.post("/v1/completions", body)["usage"]["completion_tokens"], 0);
}

TEST(TemplateVariables, ArePassedToTheTemplate) {
  TinyServer server;
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  const Json plain = server.post("/v1/tokenize", {{"messages", messages}});
  const Json varied =
      server.post("/v1/tokenize", {{"messages", messages}, {"chat_template_kwargs", {{"opening", "Well: "}}}});
  std::string text = server.post("/v1/detokenize", {{"tokens", plain["tokens"]}})["prompt"];
  EXPECT_EQ(server.post("/v1/detokenize", {{"tokens", varied["tokens"]}})["prompt"], text + "Well: ");
  const Json reply = server.post("/v1/chat/completions", {{"model", "org/tiny"},
                                                          {"messages", messages},
                                                          {"max_tokens", 1},
                                                          {"chat_template_kwargs", {{"opening", "Well: "}}}});
  EXPECT_EQ(reply["usage"]["prompt_tokens"], varied["count"]);
}

}  // namespace
}  // namespace ingot::server
