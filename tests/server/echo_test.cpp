// Completions with an echoed prompt, and the log-probabilities of its tokens.
#include <gtest/gtest.h>

#include <algorithm>

#include "tensor/tolerance.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

// The usage of scoring programs: the prompt's log-probabilities equal the model's, with and without generated tokens,
// for ids and text, streamed or not.
TEST(Echo, EchoedPromptsHaveLogprobs) {
  TinyServer server;
  const std::string text =
      "a\xc3\xa9"
      "bc d";
  const std::vector<int32_t> ids = server.tokenizer->encode(text);
  ASSERT_EQ(ids.size(), 7U);  // the second letter is two tokens
  const std::vector<infer::SampledToken> expected = server.model.known(ids, 2);
  const Json asked = {{"model", "org/tiny"}, {"prompt", text}, {"temperature", 0},
                      {"logprobs", 2},       {"echo", true},   {"max_tokens", 0}};
  const Json reply = server.post("/v1/completions", asked);
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice["text"], text);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], ids.size());
  EXPECT_EQ(reply["usage"]["completion_tokens"], 0);
  const Json& reported = choice["logprobs"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(reported[key].size(), ids.size()) << key;
  }
  EXPECT_TRUE(reported["token_logprobs"][0].is_null());
  EXPECT_TRUE(reported["top_logprobs"][0].is_null());
  EXPECT_EQ(reported["tokens"][0], "a");
  EXPECT_EQ(reported["text_offset"], Json({0, 1, 1, 2, 3, 4, 5}));
  const spec::ModelSpec& spec = server.model.spec();
  const double bound = tolerance(DType::f32, 7 * spec.num_layers() * std::max(spec.vocab, server.model.ffn()));
  for (size_t i = 1; i < ids.size(); ++i) {
    EXPECT_NEAR(reported["token_logprobs"][i].get<double>() / static_cast<double>(expected[i - 1].logprob), 1, bound);
    double most = -1e9;
    for (const Json& logprob : reported["top_logprobs"][i]) most = std::max(most, logprob.get<double>());
    EXPECT_NEAR(most / static_cast<double>(expected[i - 1].top[0].logprob), 1, bound);
  }

  Json by_ids = asked;
  by_ids["prompt"] = {ids, server.tokenizer->encode("x")};
  const Json both = server.post("/v1/completions", by_ids)["choices"];
  EXPECT_EQ(both[0]["logprobs"], reported);
  EXPECT_EQ(both[0]["text"], text);
  EXPECT_EQ(both[1]["logprobs"], Json::parse(R"({"tokens": ["x"], "token_logprobs": [null], "top_logprobs": [null],
                                                 "text_offset": [0]})"));

  Json longer = asked;
  longer["max_tokens"] = 3;
  const Json answer = server.post("/v1/completions", longer)["choices"][0];
  Json alone = longer;
  alone["echo"] = false;
  const Json behind = server.post("/v1/completions", alone)["choices"][0];
  EXPECT_EQ(answer["text"], text + behind["text"].get<std::string>());
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    Json joined = reported[key];
    for (const Json& one : behind["logprobs"][key]) {
      joined.push_back(key == std::string("text_offset") ? Json(one.get<size_t>() + 6) : one);
    }
    EXPECT_EQ(answer["logprobs"][key], joined) << key;
  }

  longer["stream"] = true;
  longer["n"] = 2;
  std::vector<Json> pieces(2, Json::object());
  const std::vector<Json> events = server.stream("/v1/completions", longer);
  std::string streamed;
  for (const Json& event : events) {
    if (event["choices"][0]["index"] == 0) streamed += event["choices"][0]["text"].get<std::string>();
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const auto& [key, list] : logprobs.items()) {
      for (const Json& one : list) pieces[event["choices"][0]["index"].get<size_t>()][key].push_back(one);
    }
  }
  EXPECT_EQ(pieces[0], answer["logprobs"]);
  EXPECT_EQ(pieces[1], answer["logprobs"]);
  EXPECT_EQ(answer["text"], streamed);
}

TEST(Echo, EchoMayGenerateNothing) {
  TinyServer server;
  const Json asked = {{"model", "org/tiny"}, {"prompt", "abc"}, {"echo", true}, {"max_tokens", 0}};
  const Json choice = server.post("/v1/completions", asked)["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_TRUE(choice["logprobs"].is_null());
  Json full = asked;
  full["prompt"] = std::string(256, 'a');  // the whole context
  server.post("/v1/completions", full);
  full["prompt"] = std::string(257, 'a');
  EXPECT_EQ(server.post("/v1/completions", full, 400)["error"]["code"], "context_length_exceeded");
}

// Scoring programs drop the last reported token, as it is the generated one. It must be reported even when it is the
// end token.
TEST(Echo, TheEndTokenIsReportedAfterAnEchoedPrompt) {
  TinyServer server;
  ASSERT_FALSE(server.served.eos.empty());
  const int32_t end = server.served.eos.front();
  Json asked = {{"model", "org/tiny"},
                {"prompt", "abc"},
                {"max_tokens", 1},
                {"temperature", 0},
                {"logprobs", 1},
                {"echo", true},
                {"logit_bias", {{std::to_string(end), 100}}}};
  const Json choice = server.post("/v1/completions", asked)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["text"], "abc");
  ASSERT_EQ(choice["logprobs"]["tokens"].size(), 4U);
  EXPECT_LT(choice["logprobs"]["token_logprobs"][3].get<double>(), 0);
  EXPECT_EQ(choice["logprobs"]["text_offset"][3], 3);
  asked["echo"] = false;
  EXPECT_TRUE(server.post("/v1/completions", asked)["choices"][0]["logprobs"]["tokens"].empty());
}

TEST(Echo, EchoedLogprobsAreLimited) {
  TinyServer server;
  server.served.context = int64_t{1} << 21;
  const Json asked = {{"model", "org/tiny"}, {"prompt", std::string(1 << 20, 'a')},
                      {"logprobs", 5},       {"echo", true},
                      {"max_tokens", 0},     {"stream", true}};
  const Json refused = server.post("/v1/completions", asked, 400)["error"];
  EXPECT_EQ(refused["param"], "prompt");
  EXPECT_NE(refused["message"].get<std::string>().find("log-probabilities"), std::string::npos);
}

}  // namespace
}  // namespace ingot::server
