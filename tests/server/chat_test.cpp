// Chat completions over a real socket: texts, streams, usage, log-probabilities, stop strings, tools, formats.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/server/replies.h"

namespace ingot::server {
namespace {

TEST(Chat, GreedyTextEqualsTheModels) {
  TinyServer server;
  const std::vector<int32_t> prompt = server.chat_prompt("hello");
  const std::vector<int32_t> ids = server.greedy(prompt, 40);
  const Json reply = server.post("/v1/chat/completions", chat("hello", {{"max_tokens", 40}}));
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(reply["model"], "org/tiny");
  EXPECT_EQ(reply["choices"].size(), 1U);
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice["message"]["content"], server.text_of(ids));
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_TRUE(choice["message"]["refusal"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], ids.size() == 40 ? "length" : "stop");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], prompt.size());
  EXPECT_EQ(reply["usage"]["completion_tokens"], ids.size());
  EXPECT_EQ(reply["usage"]["total_tokens"], prompt.size() + ids.size());
}

TEST(Chat, AStreamHasTheSameText) {
  TinyServer server;
  for (const char* words : {"hello", "x", "What is this?"}) {
    const Json body = chat(words, {{"max_tokens", 60}, {"temperature", 1.3}, {"seed", 5}});
    Json streamed = body;
    streamed["stream"] = true;
    streamed["stream_options"] = {{"include_usage", true}};
    const Json whole = server.post("/v1/chat/completions", body);
    const std::vector<Json> events = server.stream("/v1/chat/completions", streamed);
    EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
    EXPECT_EQ(whole["choices"][0]["message"]["content"], joined(events, 1, "chat.completion.chunk")[0]);
    EXPECT_TRUE(events.front().contains("usage") && events.front()["usage"].is_null());
    EXPECT_TRUE(events.back()["choices"].empty());
    EXPECT_EQ(events.back()["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
  }
}

TEST(Chat, StreamsSplitNoCharacter) {
  TinyServer server;
  // Each of these letters is two tokens.
  server.masks.text = "{\"name\":\"\xc3\xa9\xc3\xbc\xc3\xb6\"}";
  ASSERT_EQ(server.tokenizer->encode("\xc3\xa9").size(), 2U);
  const Json format = {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", {{"type", "object"}}}}}};
  const std::vector<Json> events =
      server.stream("/v1/chat/completions", chat("x", {{"response_format", format}, {"stream", true}}));
  EXPECT_EQ(joined(events, 1, "chat.completion.chunk")[0], server.masks.text);
  for (const Json& event : events) EXPECT_EQ(event.dump().find("\xef\xbf\xbd"), std::string::npos) << event;
}

TEST(Chat, SeedsAndSeveralChoicesAreReproducible) {
  TinyServer server;
  const auto texts = [&](int64_t seed, int n) {
    const Json reply = server.post("/v1/chat/completions",
                                   chat("hi", {{"n", n}, {"seed", seed}, {"temperature", 1}, {"max_tokens", 24}}));
    std::vector<std::string> out;
    for (const Json& choice : reply["choices"]) out.push_back(choice["message"]["content"]);
    EXPECT_EQ(reply["usage"]["prompt_tokens"], server.chat_prompt("hi").size());
    return out;
  };
  const std::vector<std::string> three = texts(7, 3);
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(std::set<std::string>(three.begin(), three.end()).size(), 3U);
  EXPECT_EQ(texts(7, 3), three);
  EXPECT_EQ(texts(7, 1)[0], three[0]);
  EXPECT_NE(texts(8, 1)[0], three[0]);
  const std::vector<Json> events =
      server.stream("/v1/chat/completions",
                    chat("hi", {{"n", 3}, {"seed", 7}, {"temperature", 1}, {"max_tokens", 24}, {"stream", true}}));
  EXPECT_EQ(joined(events, 3, "chat.completion.chunk"), three);
}

TEST(Chat, StopStringsDoNotLeak) {
  TinyServer server;
  const Json sampled = {{"max_tokens", 60}, {"temperature", 1.3}, {"seed", 11}};
  const std::string all =
      server.post("/v1/chat/completions", chat("hello", sampled))["choices"][0]["message"]["content"];
  // ASCII pieces from different places of the text, each of several tokens.
  int tried = 0;
  for (size_t at = 4; at + 3 < all.size(); at += 5) {
    const std::string stop = all.substr(at, 3);
    if (!std::all_of(stop.begin(), stop.end(), [](char c) { return c > 0; })) continue;
    Json body = chat("hello", sampled);
    body["stop"] = {stop, "never in there"};
    const std::string expected = all.substr(0, all.find(stop));
    const Json whole = server.post("/v1/chat/completions", body);
    EXPECT_EQ(whole["choices"][0]["message"]["content"], expected);
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
    body["stream"] = true;
    EXPECT_EQ(joined(server.stream("/v1/chat/completions", body), 1, "chat.completion.chunk")[0], expected);
    ++tried;
  }
  EXPECT_GT(tried, 2);
}

TEST(Chat, StopStringsMayCompleteAtTheEnd) {
  TinyServer server;
  // An incomplete character is sent only at the end, as U+FFFD.
  const int half = *server.tokenizer->find("\xc3\x83");
  Json body = chat("x", {{"max_tokens", 1}, {"logit_bias", {{std::to_string(half), 100}}}});
  const Json without = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(without["message"]["content"], "\xef\xbf\xbd");
  EXPECT_EQ(without["finish_reason"], "length");
  body["stop"] = "\xef\xbf\xbd";
  const Json with = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(with["message"]["content"], "");
  EXPECT_EQ(with["finish_reason"], "stop");
}

TEST(Chat, LogprobsEqualTheModels) {
  TinyServer server;
  const std::vector<infer::SampledToken> reference = server.model.greedy(server.chat_prompt("hello"), 12);
  const Json reply =
      server.post("/v1/chat/completions", chat("hello", {{"max_tokens", 12}, {"logprobs", true}, {"top_logprobs", 3}}));
  const Json& tokens = reply["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), reply["usage"]["completion_tokens"].get<size_t>());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(tokens[i]["logprob"].get<double>(), static_cast<double>(reference[i].logprob), 1e-4);
    ASSERT_EQ(tokens[i]["top_logprobs"].size(), 3U);
    EXPECT_EQ(tokens[i]["top_logprobs"][0]["token"], tokens[i]["token"]);
    std::string bytes;
    for (const Json& byte : tokens[i]["bytes"]) bytes += static_cast<char>(byte.get<int>());
    EXPECT_EQ(bytes, server.tokenizer->token_bytes(reference[i].id));
  }
  Json streamed = chat("hello", {{"max_tokens", 12}, {"logprobs", true}, {"stream", true}});
  size_t reported = 0;
  for (const Json& event : server.stream("/v1/chat/completions", streamed)) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) reported += logprobs["content"].size();
  }
  EXPECT_EQ(reported, tokens.size());
}

TEST(Chat, AppliesLogitBiasAndLengthLimits) {
  TinyServer server;
  const int id = *server.tokenizer->find("Q");
  const Json biased = server.post("/v1/chat/completions",
                                  chat("hello", {{"max_tokens", 5}, {"logit_bias", {{std::to_string(id), 100}}}}));
  EXPECT_EQ(biased["choices"][0]["message"]["content"], "QQQQQ");
  // max_tokens beyond the context is reduced to the context.
  const Json cut =
      server.post("/v1/chat/completions",
                  chat("hello", {{"max_completion_tokens", 100000}, {"logit_bias", {{std::to_string(id), 100}}}}));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(cut["usage"]["total_tokens"], 256);
  const Json too_long = server.post("/v1/chat/completions", chat(std::string(300, 'a')), 400)["error"];
  EXPECT_EQ(too_long["code"], "context_length_exceeded");
  EXPECT_EQ(too_long["param"], "messages");
}

TEST(Chat, ForcedToolCallsAreParsed) {
  TinyServer server;
  const Json tools = {
      {{"type", "function"},
       {"function", {{"name", "f"}, {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}},
      {{"type", "function"}, {"function", {{"name", "g"}}}}};
  Json body = chat("x", {{"tools", tools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}});
  const Json reply = server.post("/v1/chat/completions", body);
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"], (Json{{"name", "f"}, {"arguments", R"({"x":1})"}}));
  const Json schema = Json::parse(server.masks.schemas.lock()->back());
  EXPECT_EQ(schema["properties"]["name"]["const"], "f");
  EXPECT_EQ(schema["properties"]["arguments"]["type"], "object");

  body["tool_choice"] = "required";
  body["stream"] = true;
  std::string name, arguments;
  for (const Json& event : server.stream("/v1/chat/completions", body)) {
    const Json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const Json& function = delta["tool_calls"][0]["function"];
    if (function.contains("name")) name += function["name"].get<std::string>();
    arguments += function["arguments"].get<std::string>();
  }
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, R"({"x":1})");
  EXPECT_EQ(Json::parse(server.masks.schemas.lock()->back())["anyOf"].size(), 2U);
}

TEST(Chat, TruncatedToolCallsAreReportedAsLength) {
  TinyServer server;
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}},
                      {{"type", "function"}, {"function", {{"name", "g"}}}}};
  const Json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  // Each character is one token.
  const size_t before = std::string_view(R"({"name":"f","arguments":)").size();
  for (const auto& [choice, tokens, arguments] :
       {std::tuple(named, before + 4, R"({"x")"), std::tuple(Json("required"), before + 4, R"({"x")"),
        std::tuple(named, before + 7, R"({"x":1})"), std::tuple(named, size_t{1}, "")}) {
    Json body = chat("x", {{"tools", tools}, {"tool_choice", choice}, {"max_tokens", tokens}});
    const Json reply = server.post("/v1/chat/completions", body)["choices"][0];
    EXPECT_EQ(reply["finish_reason"], "length");
    EXPECT_TRUE(reply["message"]["content"].is_null()) << reply;
    ASSERT_EQ(reply["message"].value("tool_calls", Json::array()).size(), 1U) << reply;
    EXPECT_EQ(reply["message"]["tool_calls"][0]["function"], (Json{{"name", "f"}, {"arguments", arguments}}));

    body["stream"] = true;
    const std::vector<Json> events = server.stream("/v1/chat/completions", body);
    EXPECT_EQ(joined(events, 1, "chat.completion.chunk")[0], "");
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
    std::string name, streamed;
    for (const Json& event : events) {
      for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
        name += call["function"].value("name", "");
        streamed += call["function"]["arguments"].get<std::string>();
      }
    }
    EXPECT_EQ(name, "f");
    EXPECT_EQ(streamed, arguments);
  }
}

// A stop string inside a tool call truncates it: the rest is reported as truncated and not as a regular end.
TEST(Chat, ToolCallsTruncatedByAStopStringAreNotRegularEnds) {
  TinyServer server;
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}},
                      {{"type", "function"}, {"function", {{"name", "g"}}}}};
  const Json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  for (const auto& [choice, stop, arguments] :
       {std::tuple(named, "}", R"({"x":1)"), std::tuple(Json("required"), "}", R"({"x":1)"), std::tuple(named, "e", ""),
        std::tuple(Json("required"), "e", "no call")}) {
    Json body = chat("x", {{"tools", tools}, {"tool_choice", choice}, {"stop", {stop}}});
    const Json reply = server.post("/v1/chat/completions", body)["choices"][0];
    EXPECT_EQ(reply["finish_reason"], "length") << reply;
    const Json calls = reply["message"].value("tool_calls", Json::array());
    if (std::string_view(arguments) == "no call") {  // the text does not show which call it would become
      EXPECT_EQ(reply["message"]["content"], R"({"nam)");
      EXPECT_TRUE(calls.empty()) << reply;
    } else {
      ASSERT_EQ(calls.size(), 1U) << reply;
      EXPECT_EQ(calls[0]["function"], (Json{{"name", "f"}, {"arguments", arguments}}));
    }
    body["stream"] = true;
    EXPECT_EQ(server.stream("/v1/chat/completions", body).back()["choices"][0]["finish_reason"], "length");
  }
}

TEST(Chat, ParallelToolCallsCanBeDisabled) {
  TinyServer server;
  server.served.tool_call_tags = true;
  const std::string call = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";
  server.masks.text = call + call;  // the model generates this under any schema
  Json body = chat("x", {{"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
                         {"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}}}});
  const Json both = server.post("/v1/chat/completions", body);
  EXPECT_EQ(both["choices"][0]["message"]["tool_calls"].size(), 2U);
  body["parallel_tool_calls"] = false;
  const Json one = server.post("/v1/chat/completions", body);
  ASSERT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(one["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(one["usage"]["completion_tokens"], call.size());
}

TEST(Chat, AppliesResponseFormats) {
  TinyServer server;
  const auto format = [](Json schema) {
    return Json{{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", std::move(schema)}}}};
  };
  const Json reply =
      server.post("/v1/chat/completions", chat("x", {{"response_format", format({{"type", "object"}})}}));
  EXPECT_EQ(reply["choices"][0]["message"]["content"], server.masks.text);
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  const Json any = server.post("/v1/chat/completions", chat("x", {{"response_format", {{"type", "json_object"}}}}));
  EXPECT_EQ(any["choices"][0]["message"]["content"], "{}");
  const Json refused =
      server.post("/v1/chat/completions", chat("x", {{"response_format", format({{"refuse", true}})}}), 400)["error"];
  EXPECT_EQ(refused["param"], "response_format");
  EXPECT_NE(refused["message"].get<std::string>().find("'refuse'"), std::string::npos);
  const Answer large =
      server.ask("POST", "/v1/chat/completions", chat("x", {{"response_format", format({{"huge", true}})}}).dump());
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(Json::parse(large.body)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(Json::parse(large.body)["error"]["code"], "invalid_value");
  EXPECT_FALSE(large.headers.contains("retry-after"));
}

// The grammar is the client's: a retry does not help, and the server has not failed.
TEST(Chat, AGrammarBeyondItsLimitsIsARequestError) {
  TinyServer server;
  Json body = chat("x", {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}}}});
  body["response_format"]["json_schema"]["schema"] = {{"exceed", true}};
  const Json error = server.post("/v1/chat/completions", body, 400)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_NE(error["message"].get<std::string>().find("more than 9 steps"), std::string::npos);
}

TEST(Chat, EngineFailuresAreServerErrors) {
  TinyServer server;
  Json body = chat("x", {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}}}});
  body["response_format"]["json_schema"]["schema"] = {{"break", true}};
  const Json whole = server.post("/v1/chat/completions", body, 500)["error"];
  EXPECT_EQ(whole["type"], "server_error");
  EXPECT_EQ(whole["message"].get<std::string>().find("mask"), std::string::npos);
  EXPECT_NE(server.log_lines(1).back().value("failure", "").find("more than 9 steps"), std::string::npos);

  body["stream"] = true;
  const Answer streamed = server.ask("POST", "/v1/chat/completions", body.dump());
  EXPECT_TRUE(streamed.whole);
  if (streamed.status == 200) {  // a part had been sent before
    const size_t last = streamed.body.rfind("data: ");
    EXPECT_EQ(Json::parse(streamed.body.substr(last + 6))["error"], whole);
  } else {
    EXPECT_EQ(Json::parse(streamed.body)["error"], whole);
  }
  EXPECT_NE(server.log_lines(2).back().value("failure", "").find("more than 9 steps"), std::string::npos);
}

}  // namespace
}  // namespace ingot::server
