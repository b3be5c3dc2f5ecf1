// Request fields: types, ranges, and the parameter that an error names.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/requests.h"

namespace ingot::server {
namespace {

struct Case {
  const char* name;
  const char* body;
  const char* param;  // nullptr: null
  const char* code;
};

template <class Parse>
void expect_refused(const Case& c, Parse parse) {
  try {
    parse(c.body);
    ADD_FAILURE() << c.name << " was accepted";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400) << c.name;
    EXPECT_EQ(error.param, c.param ? std::optional<std::string>(c.param) : std::nullopt) << c.name;
    EXPECT_EQ(error.code, std::optional<std::string>(c.code)) << c.name;
    const nlohmann::json body = nlohmann::json::parse(error_body(error));
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(body["error"].contains(key)) << c.name;
  }
}

std::string chat_with_fields(const std::string& members) {
  return R"({"model": "m", "messages": [{"role": "user", "content": "x"}])" + members + "}";
}

TEST(Requests, InvalidChatFieldsAreErrors) {
  struct Members {
    const char* members;
    const char* param;
    const char* code;
  };
  const Members cases[] = {
      {R"(, "temperature": 2.1)", "temperature", "invalid_value"},
      {R"(, "temperature": -0.1)", "temperature", "invalid_value"},
      {R"(, "temperature": "1")", "temperature", "invalid_type"},
      {R"(, "top_p": 1.01)", "top_p", "invalid_value"},
      {R"(, "n": 0)", "n", "invalid_value"},
      {R"(, "n": 129)", "n", "invalid_value"},
      {R"(, "n": 1.5)", "n", "invalid_type"},
      {R"(, "n": 18446744073709551615)", "n", "invalid_value"},
      {R"(, "top_logprobs": 2)", "top_logprobs", "invalid_value"},
      {R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs", "invalid_value"},
      {R"(, "logprobs": 1)", "logprobs", "invalid_type"},
      {R"(, "max_tokens": 0)", "max_tokens", "invalid_value"},
      {R"(, "max_tokens": 3, "max_completion_tokens": 4)", "max_tokens", "invalid_value"},
      {R"(, "stop": ["a", "b", "c", "d", "e"])", "stop", "invalid_value"},
      {R"(, "stop": "")", "stop", "invalid_value"},
      {R"(, "stop": [1])", "stop[0]", "invalid_type"},
      {R"(, "stream_options": {"include_usage": true})", "stream_options", "invalid_value"},
      {R"(, "stream": true, "stream_options": {"other": true})", "stream_options.other", "unsupported_parameter"},
      {R"(, "presence_penalty": 2.5)", "presence_penalty", "invalid_value"},
      {R"(, "frequency_penalty": -2.5)", "frequency_penalty", "invalid_value"},
      {R"(, "logit_bias": {"a": 1})", "logit_bias", "invalid_value"},
      {R"(, "logit_bias": {"-1": 1})", "logit_bias", "invalid_value"},
      {R"(, "logit_bias": {"1": 101})", "logit_bias", "invalid_value"},
      {R"(, "logit_bias": [1])", "logit_bias", "invalid_type"},
      {R"(, "seed": 9223372036854775808)", "seed", "invalid_value"},
      {R"(, "seed": 0.5)", "seed", "invalid_type"},
      {R"(, "response_format": {"type": "xml"})", "response_format.type", "invalid_value"},
      {R"(, "response_format": {"type": "json_schema"})", "response_format.json_schema", "missing_required_parameter"},
      {R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "a b"}})",
       "response_format.json_schema.name", "invalid_value"},
      {R"(, "tool_choice": "auto")", "tool_choice", "invalid_value"},
      {R"(, "tools": [])", "tools", "invalid_value"},
      {R"(, "tools": [{"type": "function"}])", "tools[0].function", "missing_required_parameter"},
      {R"(, "tools": [{"type": "web", "function": {"name": "f"}}])", "tools[0].type", "invalid_value"},
      {R"(, "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}})",
       "tool_choice.function.name", "invalid_value"},
      {R"(, "modalities": ["audio"])", "modalities", "unsupported_value"},
      {R"(, "functions": [])", "functions", "unsupported_parameter"},
      {R"(, "min_p": 2)", "min_p", "invalid_value"},
      {R"(, "priority": 101)", "priority", "invalid_value"},
      {R"(, "deadline_ms": 0)", "deadline_ms", "invalid_value"},
      {R"(, "n_discard": -1)", "n_discard", "unsupported_parameter"},
  };
  for (const Members& c : cases) {
    const std::string body = chat_with_fields(c.members);
    expect_refused({c.members, body.c_str(), c.param, c.code}, [](const char* text) { parse_chat(text); });
  }
}

TEST(Requests, InvalidChatBodiesAreErrors) {
  const Case cases[] = {
      {"empty", "", nullptr, "invalid_json"},
      {"array", "[]", nullptr, "invalid_type"},
      {"cut", R"({"model": )", nullptr, "invalid_json"},
      {"two values", "{} {}", nullptr, "invalid_json"},
      {"NaN", R"({"model": NaN})", nullptr, "invalid_json"},
      {"infinite", R"({"temperature": 1e999})", nullptr, "invalid_json"},
      {"twice", R"({"model": "a", "model": "b"})", nullptr, "invalid_json"},
      {"not UTF-8", "{\"model\": \"\xff\"}", nullptr, "invalid_json"},
      {"no model", R"({"messages": [{"role": "user", "content": "x"}]})", "model", "missing_required_parameter"},
      {"no messages", R"({"model": "m"})", "messages", "missing_required_parameter"},
      {"empty messages", R"({"model": "m", "messages": []})", "messages", "invalid_value"},
      {"no object", R"({"model": "m", "messages": ["x"]})", "messages[0]", "invalid_type"},
      {"unknown role", R"({"model": "m", "messages": [{"role": "robot", "content": "x"}]})", "messages[0].role",
       "invalid_value"},
      {"no content", R"({"model": "m", "messages": [{"role": "user"}]})", "messages[0].content",
       "missing_required_parameter"},
      {"an image", R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0].type", "unsupported_value"},
      {"tool without id", R"({"model": "m", "messages": [{"role": "tool", "content": "x"}]})",
       "messages[0].tool_call_id", "missing_required_parameter"},
      {"arguments", R"({"model": "m", "messages": [{"role": "assistant", "tool_calls":
        [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "invalid_value"},
  };
  for (const Case& c : cases) expect_refused(c, [](const char* text) { parse_chat(text); });
  const std::string deep = std::string(100000, '[');
  expect_refused({"deep", deep.c_str(), nullptr, "invalid_json"}, [](const char* text) { parse_chat(text); });
}

TEST(Requests, ReadsEveryChatField) {
  const ChatRequest request = parse_chat(R"({
    "model": "m", "temperature": 0, "top_p": 0.5, "n": 2, "stop": "end", "seed": -3, "stream": true,
    "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4, "max_completion_tokens": 9,
    "logit_bias": {"7": -100, "3": 2.5}, "presence_penalty": 1, "frequency_penalty": -1, "user": "u", "metadata": {},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": {"type": "null"}}},
    "tools": [{"type": "function", "function": {"name": "g"}},
      {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "messages": [
      {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls":
        [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "content": "1", "tool_call_id": "c1"}]})");
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_FALSE(parse_chat(chat_with_fields(R"(, "parallel_tool_calls": false)")).parallel_tool_calls);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.stop, std::vector<std::string>{"end"});
  EXPECT_EQ(request.seed, -3);
  EXPECT_TRUE(request.stream && request.include_usage && request.logprobs);
  EXPECT_EQ(request.sampling.top_logprobs, 4);
  EXPECT_EQ(request.max_tokens, 9);
  ASSERT_EQ(request.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(request.sampling.logit_bias[0].id, 7);
  EXPECT_EQ(request.sampling.logit_bias[0].bias, -100);
  EXPECT_EQ(request.format.constraint.text, R"({"type":"null"})");
  EXPECT_EQ(request.tool_choice, ToolChoice::required);
  ASSERT_EQ(request.tool_list.size(), 1U);
  EXPECT_EQ(request.tool_list[0].name, "f");
  EXPECT_EQ(nlohmann::json::parse(request.tools).size(), 2U);  // the template gets all tools
  EXPECT_EQ(request.tool_list[0].parameters, R"({"type":"object"})");
  EXPECT_EQ(nlohmann::json::parse(request.messages), nlohmann::json::parse(R"([
    {"role": "system", "content": "a\nb"},
    {"role": "assistant", "content": "", "tool_calls":
      [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "1", "tool_call_id": "c1"}])"));
}

TEST(Requests, ADeadlineStartsWhenTheRequestIsParsed) {
  using Clock = std::chrono::steady_clock;
  EXPECT_FALSE(parse_chat(chat_with_fields("")).deadline);
  const Clock::time_point before = Clock::now();
  const ChatRequest request = parse_chat(chat_with_fields(R"(, "deadline_ms": 7000)"));
  const Clock::time_point after = Clock::now();
  ASSERT_TRUE(request.deadline);
  EXPECT_GE(*request.deadline, before + std::chrono::seconds(7));
  EXPECT_LE(*request.deadline, after + std::chrono::seconds(7));
}

TEST(Requests, ReadsCompletionPrompts) {
  const auto prompts = [](const char* prompt) {
    return parse_completion(std::string(R"({"model": "m", "prompt": )") + prompt + "}").prompts;
  };
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (std::vector<Prompt>{Ids{1, 2}, Ids{3}}));
  EXPECT_EQ(parse_completion(R"({"model": "m", "prompt": "a"})").max_tokens, 16);

  const Case cases[] = {
      {"none", R"({"model": "m"})", "prompt", "missing_required_parameter"},
      {"empty list", R"({"model": "m", "prompt": []})", "prompt", "invalid_type"},
      {"empty ids", R"({"model": "m", "prompt": [[]]})", "prompt[0]", "invalid_value"},
      {"negative id", R"({"model": "m", "prompt": [-1]})", "prompt", "invalid_value"},
      {"large id", R"({"model": "m", "prompt": [4294967296]})", "prompt", "invalid_value"},
      {"fraction", R"({"model": "m", "prompt": [[1.5]]})", "prompt[0]", "invalid_type"},
      {"logprobs", R"({"model": "m", "prompt": "a", "logprobs": 6})", "logprobs", "invalid_value"},
      {"nothing", R"({"model": "m", "prompt": "a", "logprobs": 1, "max_tokens": 0})", "max_tokens", "invalid_value"},
      {"best_of", R"({"model": "m", "prompt": "a", "n": 3, "best_of": 2})", "best_of", "invalid_value"},
      {"best_of stream", R"({"model": "m", "prompt": "a", "best_of": 2, "stream": true})", "best_of", "invalid_value"},
      {"suffix", R"({"model": "m", "prompt": "a", "suffix": "b"})", "suffix", "unsupported_parameter"},
  };
  for (const Case& c : cases) expect_refused(c, [](const char* text) { parse_completion(text); });
}

TEST(Requests, ReadsEmbeddingsAndAdapters) {
  EXPECT_EQ(parse_embeddings(R"({"model": "m", "input": ["a", "b"], "encoding_format": "base64"})").inputs.size(), 2U);
  const Case embeddings[] = {
      {"empty", R"({"model": "m", "input": ""})", "input", "invalid_value"},
      {"format", R"({"model": "m", "input": "a", "encoding_format": "int8"})", "encoding_format", "invalid_value"},
      {"dimensions", R"({"model": "m", "input": "a", "dimensions": 0})", "dimensions", "invalid_value"},
  };
  for (const Case& c : embeddings) expect_refused(c, [](const char* text) { parse_embeddings(text); });
  for (const char* name : {"../x", "a/b", "", ".hidden", "a\\\\b", "a b", "%2e%2e", "x\\u0000y"}) {
    const std::string body = std::string(R"({"name": ")") + name + "\"}";
    expect_refused({name, body.c_str(), "name", "invalid_value"}, [](const char* text) { parse_adapter(text); });
  }
  EXPECT_EQ(parse_adapter(R"({"name": "poet-v1.2"})").name, "poet-v1.2");
}

}  // namespace
}  // namespace ingot::server
