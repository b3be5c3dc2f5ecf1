// Plain completions over a real socket: prompts, streams, log-probabilities, the best of several, adapters.
#include <gtest/gtest.h>

#include "tests/server/replies.h"

namespace ingot::server {
namespace {

TEST(Completions, LogprobsAreLimited) {
  TinyServer server;
  server.served.context = int64_t{1} << 20;
  const Json refused =
      server.post("/v1/chat/completions", chat("x", {{"n", 2}, {"logprobs", true}, {"top_logprobs", 2}}), 400)["error"];
  EXPECT_EQ(refused["param"], "top_logprobs");
  EXPECT_NE(refused["message"].get<std::string>().find("max_tokens"), std::string::npos);
  const Json completion = {{"model", "org/tiny"}, {"prompt", {"a", "b"}}, {"max_tokens", 1 << 20}, {"logprobs", 2}};
  EXPECT_EQ(server.post("/v1/completions", completion, 400)["error"]["param"], "logprobs");
  server.post("/v1/chat/completions",
              chat("x", {{"n", 2}, {"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 2}}));
}

// Errors that the engine finds in a request are reported as errors of the request.
TEST(Completions, EngineRefusalsAreRequestErrors) {
  TinyServer server;
  server.served.context = 4096;  // the engine's context is 256
  const Json refused =
      server.post("/v1/completions", {{"model", "org/tiny"}, {"prompt", std::string(300, 'a')}}, 400)["error"];
  EXPECT_EQ(refused["type"], "invalid_request_error");
  EXPECT_NE(refused["message"].get<std::string>().find("256"), std::string::npos);
}

TEST(Completions, AcceptsPromptsInAllForms) {
  TinyServer server;
  const std::vector<int32_t> first = server.tokenizer->encode("abc");
  const std::vector<int32_t> second = server.tokenizer->encode("Zz 9");
  const std::string first_text = server.text_of(server.greedy(first, 16));
  const std::string second_text = server.text_of(server.greedy(second, 16));
  const auto texts = [&](Json prompt, Json more = Json::object()) {
    more["model"] = "org/tiny";
    more["prompt"] = std::move(prompt);
    more["temperature"] = 0;
    const Json reply = server.post("/v1/completions", more);
    EXPECT_EQ(reply["object"], "text_completion");
    std::vector<std::string> out;
    for (const Json& choice : reply["choices"]) {
      EXPECT_EQ(choice["index"], out.size());
      out.push_back(choice["text"]);
    }
    return out;
  };
  EXPECT_EQ(texts("abc"), std::vector<std::string>{first_text});
  EXPECT_EQ(texts({"abc", "Zz 9"}), (std::vector<std::string>{first_text, second_text}));
  EXPECT_EQ(texts(Json(first)), std::vector<std::string>{first_text});
  EXPECT_EQ(texts(Json::array({Json(second), Json(first)})), (std::vector<std::string>{second_text, first_text}));
  EXPECT_EQ(texts({"abc", "Zz 9"}, {{"n", 2}}),
            (std::vector<std::string>{first_text, first_text, second_text, second_text}));
  EXPECT_EQ(texts("abc", {{"echo", true}}), std::vector<std::string>{"abc" + first_text});
  const Json outside = server.post("/v1/completions", {{"model", "org/tiny"}, {"prompt", {131}}}, 400)["error"];
  EXPECT_EQ(outside["param"], "prompt");
}

TEST(Completions, StreamsOfSeveralPromptsAreComplete) {
  TinyServer server;
  const Json body = {{"model", "org/tiny"}, {"prompt", {"abc", "Zz 9"}}, {"temperature", 0}, {"echo", true}};
  const Json whole = server.post("/v1/completions", body);
  Json streamed = body;
  streamed["stream"] = true;
  const std::vector<std::string> texts = joined(server.stream("/v1/completions", streamed), 2, "text_completion");
  EXPECT_EQ(whole["choices"][0]["text"], texts[0]);
  EXPECT_EQ(whole["choices"][1]["text"], texts[1]);
}

TEST(Completions, LogprobsHaveOpenaisForm) {
  TinyServer server;
  const std::vector<infer::SampledToken> reference = server.model.greedy(server.tokenizer->encode("abc"), 8);
  const Json reply =
      server.post("/v1/completions",
                  {{"model", "org/tiny"}, {"prompt", "abc"}, {"temperature", 0}, {"max_tokens", 8}, {"logprobs", 2}});
  const Json& logprobs = reply["choices"][0]["logprobs"];
  const size_t count = reply["usage"]["completion_tokens"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(logprobs[key].size(), count) << key;
  }
  for (size_t i = 0; i < count; ++i) {
    EXPECT_NEAR(logprobs["token_logprobs"][i].get<double>(), static_cast<double>(reference[i].logprob), 1e-4);
  }
  EXPECT_EQ(logprobs["text_offset"][0], 0);
}

TEST(Completions, BestOfReturnsTheMostLikely) {
  TinyServer server;
  const auto ask = [&](int n, int best_of) {
    return server.post("/v1/completions", {{"model", "org/tiny"},
                                           {"prompt", "abc"},
                                           {"seed", 3},
                                           {"temperature", 1},
                                           {"max_tokens", 6},
                                           {"logprobs", 0},
                                           {"n", n},
                                           {"best_of", best_of}});
  };
  const Json all = ask(5, 5);
  double best = -1e9;
  std::string best_text;
  for (const Json& choice : all["choices"]) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    const double mean = sum / static_cast<double>(choice["logprobs"]["token_logprobs"].size());
    if (mean > best) {
      best = mean;
      best_text = choice["text"];
    }
  }
  const Json one = ask(1, 5);
  ASSERT_EQ(one["choices"].size(), 1U);
  EXPECT_EQ(one["choices"][0]["text"], best_text);
}

// EOS is made more likely until some, but not all, outputs end before their first token: these are chosen last.
TEST(Completions, BestOfPrefersOutputsWithTokens) {
  TinyServer server;
  Json body = {{"model", "org/tiny"}, {"prompt", "abc"}, {"seed", 3}, {"max_tokens", 6}, {"n", 8}, {"best_of", 8}};
  body["logprobs"] = 0;
  const auto is_empty = [](const Json& choice) { return choice["logprobs"]["tokens"].empty(); };
  int64_t empty = 0;
  for (int bias = 0; bias < 100 && empty == 0; ++bias) {
    body["logit_bias"] = {{"2", bias}};
    const Json reply = server.post("/v1/completions", body);
    empty = std::ranges::count_if(reply["choices"], is_empty);
  }
  ASSERT_GT(empty, 0);
  ASSERT_LT(empty, 8);
  body["n"] = 8 - empty;
  const Json reply = server.post("/v1/completions", body);
  EXPECT_EQ(std::ssize(reply["choices"]), 8 - empty);
  EXPECT_TRUE(std::ranges::none_of(reply["choices"], is_empty)) << reply;
}

// With one place in the batch, the deadline leaves later outputs without tokens. It is increased until some have
// tokens.
TEST(Completions, BestOfPrefersOutputsFinishedBeforeTheDeadline) {
  TinySettings settings;
  settings.engine.sequences = 1;
  TinyServer server(std::move(settings));
  const std::string always = std::to_string(*server.tokenizer->find("Q"));
  Json body = {{"model", "org/tiny"}, {"prompt", "abc"},  {"best_of", 20},
               {"max_tokens", 200},   {"deadline_ms", 1}, {"logit_bias", {{always, 100}}}};
  Json reply = server.post("/v1/completions", body);
  while (reply["usage"]["completion_tokens"] == 0) {
    body["deadline_ms"] = 2 * body["deadline_ms"].get<int>();
    reply = server.post("/v1/completions", body);
  }
  EXPECT_NE(reply["choices"][0]["text"], "");
}

TEST(Completions, AdaptersAreModels) {
  TinyServer server;
  const Json body = {{"model", "poet"}, {"prompt", "abc"}, {"temperature", 0}};
  EXPECT_EQ(server.post("/v1/completions", body, 404)["error"]["code"], "model_not_found");
  server.post("/v1/adapters", {{"name", "poet"}});
  const nn::Adapter& weights = server.adapters.get("poet")->weights;
  const std::string expected = server.text_of(server.greedy(server.tokenizer->encode("abc"), 16, &weights));
  EXPECT_NE(expected, server.text_of(server.greedy(server.tokenizer->encode("abc"), 16)));
  EXPECT_EQ(server.post("/v1/completions", body)["choices"][0]["text"], expected);
}

}  // namespace
}  // namespace ingot::server
