// The engine's log-probabilities of prompt tokens.
#include <gtest/gtest.h>

#include "infer/engine.h"
#include "tensor/tolerance.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

class EnginePromptTest : public EngineTest {
 protected:
  Request scored(std::vector<int32_t> prompt, int64_t max_tokens, int64_t top, const nn::Adapter* adapter = nullptr) {
    Request r = request(std::move(prompt), max_tokens, adapter);
    r.prompt_logprobs = true;
    r.sampling.top_logprobs = top;
    return r;
  }
};

// For whole and chunked prompts, alone and in a batch, with and without an adapter, whatever is sampled after the
// prompt.
TEST_P(EnginePromptTest, LogprobsEqualThoseOfAFullForward) {
  const double bound =
      tolerance(DType::f32, 7 * small_.spec().num_layers() * std::max(small_.spec().vocab, small_.ffn()));
  const auto weights = small_.adapter(5, 2);
  for (const EngineSettings& s : {settings(1, 64, 16), settings(3, 64, 4), settings(3, 4, 4), settings(2, 1, 4)}) {
    std::vector<Request> requests;
    std::vector<std::vector<SampledToken>> expected;
    for (const int64_t length : {1, 2, 19, 30}) {
      const nn::Adapter* adapter = length == 19 ? &weights->adapter : nullptr;
      const std::vector<int32_t> prompt = small_.prompt(static_cast<uint64_t>(length), length);
      requests.push_back(scored(prompt, length % 3, 4, adapter));
      requests.back().sampling.temperature = 1;
      requests.back().sampling.top_k = 2;
      requests.back().sampling.logit_bias = {{3, 50}};
      requests.back().sampling.repetition_penalty = 1.5;
      expected.push_back(small_.known(prompt, 4, adapter));
    }
    requests.push_back(request(small_.prompt(7, 9), 5));
    expected.emplace_back();
    const std::vector<Answer> found = answers(s, requests);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].finish, FinishReason::length);
      EXPECT_EQ(std::ssize(found[i].tokens), requests[i].max_tokens);
      ASSERT_EQ(found[i].prompt.size(), expected[i].size()) << i;
      for (size_t t = 0; t < expected[i].size(); ++t) {
        EXPECT_EQ(found[i].prompt[t].id, expected[i][t].id);
        EXPECT_NEAR(found[i].prompt[t].logprob / expected[i][t].logprob, 1, bound) << i << " token " << t;
        ASSERT_EQ(found[i].prompt[t].top.size(), 4U);
        for (size_t n = 0; n < 4; ++n) {
          EXPECT_EQ(found[i].prompt[t].top[n].id, expected[i][t].top[n].id);
          EXPECT_NEAR(found[i].prompt[t].top[n].logprob / expected[i][t].top[n].logprob, 1, bound);
        }
      }
    }
  }
}

TEST_P(EnginePromptTest, ZeroGeneratedTokensAreAllowed) {
  EngineSettings s = settings(2, 16, 4);
  s.prefix_cache = true;
  s.draft_tokens = 3;
  Engine e = engine(s);
  const std::vector<int32_t> whole = small_.prompt(5, context);
  const auto ask = [&](const Request& r) {
    e.submit(r);
    std::map<int64_t, Answer> found;
    run(e, found);
    EXPECT_EQ(found.size(), 1U);
    EXPECT_EQ(found.begin()->second.finish, FinishReason::length);
    EXPECT_TRUE(found.begin()->second.tokens.empty());
    return found.begin()->second.prompt.size();
  };
  EXPECT_EQ(ask(request(whole, 0)), 0U);
  EXPECT_EQ(ask(scored(whole, 0, 0)), whole.size() - 1);  // although its pages are cached
  EXPECT_EQ(ask(scored({1}, 0, 2)), 0U);
  EXPECT_EQ(e.counts().used_pages, 0);
}

// A request that is preempted during or after its prompt reports every token once.
TEST_P(EnginePromptTest, EveryTokenIsReportedOnce) {
  EngineSettings s = settings(2, 6, 4, 12);
  s.prefix_cache = true;
  Engine e = engine(s);
  const std::vector<int32_t> prompt = small_.prompt(5, 30);
  const int64_t last = e.submit(scored(prompt, 4, 0));
  std::map<int64_t, Answer> found;
  run(e, found, 3);
  EXPECT_GT(found[last].prompt.size(), 0U);
  EXPECT_LT(found[last].prompt.size(), prompt.size() - 1);
  Request first = request(small_.prompt(6, 30), 8);
  first.priority = 1;
  e.submit(first);
  run(e, found);
  EXPECT_GT(e.counts().preemptions, 0);
  std::vector<int32_t> reported = {prompt[0]};
  for (const SampledToken& choice : found[last].prompt) reported.push_back(choice.id);
  EXPECT_EQ(reported, prompt);
  EXPECT_EQ(found[last].ids(), ids_of(small_.greedy(prompt, 4)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, EnginePromptTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer
