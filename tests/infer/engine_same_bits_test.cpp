// The log-probabilities of a request do not depend on other requests, to the bit.
#include <gtest/gtest.h>

#include "base/function_ref.h"
#include "infer/engine.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

// The conditions under which a prompt is computed.
struct BatchConditions {
  EngineSettings settings;
  int64_t others;  // requests beside it
  int64_t times;   // repetitions of all requests
  std::shared_ptr<const HostAdapter> with;
};

class EngineSameBitsTest : public EngineTest {
 protected:
  Answer reported(SmallModel& model, StorageType matrices, const std::vector<int32_t>& prompt,
                  const BatchConditions& conditions, FunctionRef<void(Request&, int64_t)> set);
  void expect_same_bits(StorageType matrices);
  void expect_same_prompt_bits(StorageType matrices);

  bool int8_activations_ = false;
};

// The next turn of a conversation reuses the cached prefix of the turns before it and gives the same text as without
// it. Other prompts, other salts and other adapters do not find the prefix.
TEST_P(EngineSameBitsTest, CachedPrefixesAreUsedAndChangeNothing) {
  const auto weights = small_.adapter(4, 1);
  const auto own = shared_adapter(&weights->adapter);
  EngineSettings s = settings(2, 16, 4);
  s.prefix_cache = true;
  Engine e = engine(s);
  const std::vector<int32_t> prompt = small_.prompt(31, 18);
  const auto ask = [&](std::vector<int32_t> ids, int64_t cached, uint64_t salt = 0,
                       const std::shared_ptr<const HostAdapter>& with = nullptr) {
    Request r = request(ids, 6);
    r.cache_salt = salt;
    r.adapter = with;
    const int64_t name = e.submit(r);
    std::vector<SampledToken> tokens;
    bool first = true;
    while (!e.idle()) {
      for (const Output& output : e.step()) {
        EXPECT_EQ(output.request, name);
        if (first) EXPECT_EQ(output.cached_tokens, cached);
        first = false;
        if (output.token) tokens.push_back(*output.token);
      }
    }
    const std::vector<int32_t> expected = ids_of(small_.greedy(ids, 6, with ? &with->weights : nullptr));
    EXPECT_EQ(ids_of(tokens), expected);
    ids.insert(ids.end(), expected.begin(), expected.end());
    return ids;
  };
  std::vector<int32_t> text = ask(prompt, 0);
  ask(prompt, 16);
  text.push_back(1);
  ask(text, 20);  // 18 + 6 tokens, the last of which was not computed: five full pages
  ask(prompt, 0, 7);
  ask(prompt, 0, 0, own);
  ask(prompt, 16, 0, own);
  ask(small_.prompt(32, 18), 0);
  EXPECT_EQ(e.counts().prefix_hits, 16 + 20 + 16);
  EXPECT_EQ(e.counts().used_pages, 0);
  // Cached pages are evicted when pages are needed.
  for (uint64_t i = 0; i < 6; ++i) ask(small_.prompt(40 + i, 40), 0);
  ask(prompt, 0);
}

// The last of `times` answers to `prompt`, each computed after `others` requests with other prompts in one engine. It
// and every third of the others use adapter `with`. set(request, i) completes request i; the last one is the prompt's.
Answer EngineSameBitsTest::reported(SmallModel& model, StorageType matrices, const std::vector<int32_t>& prompt,
                                    const BatchConditions& conditions, FunctionRef<void(Request&, int64_t)> set) {
  EngineSettings s = conditions.settings;
  s.activation = DType::bf16;
  s.decoded = matrices != StorageType::bf16;
  s.int8_activations = int8_activations_;
  Engine e(model.device, model.registry, model.threads, *model.model, s);
  Answer last;
  for (int64_t time = 0; time < conditions.times; ++time) {
    int64_t name = 0;
    for (int64_t i = 0; i <= conditions.others; ++i) {
      const bool own = i == conditions.others;
      Request r = request(own ? prompt : model.prompt(static_cast<uint64_t>(100 + i), 1 + i % 30), 16);
      if (own || i % 3 == 0) r.adapter = conditions.with;
      set(r, i);
      name = e.submit(r);
    }
    std::map<int64_t, Answer> found;
    run(e, found);
    last = found[name];
  }
  return last;
}

// The prompt's log-probabilities are also independent of other requests, and of the memory for logits (one row at a
// time or 65). Cached pages do not cause tokens to be left out.
void EngineSameBitsTest::expect_same_prompt_bits(StorageType matrices) {
  SmallModel model(GetParam(), matrices);
  const auto weights = model.adapter(4, 1, DType::bf16);
  const std::vector<int32_t> prompt = model.prompt(3, 21);
  const auto scores_of_both = [&](const BatchConditions& conditions) {
    const Answer answer = reported(model, matrices, prompt, conditions, [&](Request& r, int64_t i) {
      const bool own = i == conditions.others;
      r.prompt_logprobs = own || i % 2 == 0;
      r.sampling.top_logprobs = own ? 3 : i % 5;
    });
    std::vector<float> numbers;
    for (const std::vector<SampledToken>& choices : {answer.prompt, answer.tokens}) {
      for (const SampledToken& choice : choices) {
        numbers.push_back(static_cast<float>(choice.id));
        numbers.push_back(choice.logprob);
        for (const TokenLogprob& likely : choice.top) {
          numbers.push_back(static_cast<float>(likely.id));
          numbers.push_back(likely.logprob);
        }
      }
    }
    return numbers;
  };
  for (const auto& with : {std::shared_ptr<const HostAdapter>(), shared_adapter(&weights->adapter)}) {
    const std::vector<float> alone = scores_of_both({settings(1, 64, 4), 0, 1, with});
    ASSERT_EQ(alone.size(), (20U + 16U) * 8U);
    EXPECT_EQ(scores_of_both({settings(65, 128, 4), 64, 1, with}), alone);
    EXPECT_EQ(scores_of_both({settings(1, 5, 4), 0, 1, with}), alone);
    EXPECT_EQ(scores_of_both({settings(4, 1, 4), 3, 1, with}), alone);
    for (const int64_t at_once : {7, 64}) {
      EngineSettings blocks = settings(1, 64, 4);
      blocks.scored_at_once = at_once;
      EXPECT_EQ(scores_of_both({blocks, 0, 1, with}), alone);
    }
    EXPECT_EQ(scores_of_both({settings(3, 64, 4, 13), 2, 1, with}), alone);
    EngineSettings found = settings(2, 64, 4);
    found.prefix_cache = true;
    EXPECT_EQ(scores_of_both({found, 1, 2, with}), alone);
    found.draft_tokens = 4;
    EXPECT_EQ(scores_of_both({found, 1, 2, with}), alone);
  }
}

// In bf16, where another order of summation gives other values: the log-probabilities alone equal those among 64 other
// requests, with chunked prefill, after preemption, after a cached prefix, and with speculative drafts.
void EngineSameBitsTest::expect_same_bits(StorageType matrices) {
  SmallModel model(GetParam(), matrices);
  const auto weights = model.adapter(4, 1, DType::bf16);
  const std::vector<int32_t> prompt = model.prompt(3, 21);
  const auto logprobs = [&](const BatchConditions& conditions) {
    std::vector<float> numbers;
    for (const SampledToken& choice : reported(model, matrices, prompt, conditions, [](Request&, int64_t) {}).tokens) {
      numbers.push_back(static_cast<float>(choice.id));
      numbers.push_back(choice.logprob);
    }
    return numbers;
  };
  for (const auto& with : {std::shared_ptr<const HostAdapter>(), shared_adapter(&weights->adapter)}) {
    const std::vector<float> alone = logprobs({settings(1, 64, 4), 0, 1, with});
    ASSERT_EQ(alone.size(), 32U);
    EXPECT_EQ(logprobs({settings(65, 128, 4), 64, 1, with}), alone);
    EXPECT_EQ(logprobs({settings(1, 5, 4), 0, 1, with}), alone);
    EXPECT_EQ(logprobs({settings(3, 64, 4, 13), 2, 1, with}), alone);
    EngineSettings found = settings(2, 64, 4);
    found.prefix_cache = true;
    EXPECT_EQ(logprobs({found, 1, 2, with}), alone);
    found.draft_tokens = 4;
    EXPECT_EQ(logprobs({found, 1, 2, with}), alone);
  }
}

TEST_P(EngineSameBitsTest, LogitsDoNotDependOnOtherRequests) { expect_same_bits(StorageType::bf16); }
TEST_P(EngineSameBitsTest, PromptLogitsDoNotDependOnOtherRequests) { expect_same_prompt_bits(StorageType::bf16); }

class EngineInt8SameBitsTest : public EngineSameBitsTest {};

TEST_P(EngineInt8SameBitsTest, LogitsFromInt8ActivationsDoNotDependOnOtherRequests) {
  int8_activations_ = true;
  for (const StorageType matrices : {StorageType::q8_0, StorageType::q4_0}) {
    expect_same_bits(matrices);
    expect_same_prompt_bits(matrices);
  }
}

TEST_P(EngineInt8SameBitsTest, LogitsDoNotDependOnOtherRequests) { expect_same_bits(StorageType::q8_0); }
TEST_P(EngineInt8SameBitsTest, PromptLogitsDoNotDependOnOtherRequests) { expect_same_prompt_bits(StorageType::q8_0); }

INSTANTIATE_TEST_SUITE_P(Shapes, EngineSameBitsTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });
// The shape whose row sizes are multiples of 32.
INSTANTIATE_TEST_SUITE_P(Shapes, EngineInt8SameBitsTest, testing::Values("a"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer
