// The token sampler's ops compared with the plain reference.
#include "infer/token_sampler.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "infer/prompt_lookup.h"
#include "tensor/tolerance.h"

namespace ingot::infer {
namespace {

// A token sampler with `rows` rows on the CPU.
struct SamplerFixture {
  std::unique_ptr<Device> device = cpu::make_device();
  ops::Registry registry;
  ThreadPool threads{2};
  Arena scratch{*device, 1 << 20, "scratch"};
  Arena arena;
  ops::Context context{*device, registry, scratch, &threads};
  TokenSampler sampler;

  SamplerFixture(int64_t rows, int64_t vocab)
      : arena(*device, TokenSampler::bytes(rows, vocab), "choices"), sampler(*device, arena, rows, vocab) {
    cpu::register_ops(registry);
  }
  std::vector<SampleResult> run(const std::vector<float>& logits, const std::vector<SampleRequest>& requests) {
    const int64_t rows = std::ssize(requests);
    return sampler.run(context, view_of(logits, *device).reshape(Shape{rows, std::ssize(logits) / rows}), requests);
  }
};

TEST(PromptLookup, ReturnsWhatFollowedTheSameTokens) {
  const std::vector<int32_t> ids = {1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3};
  EXPECT_EQ(prompt_lookup_draft(ids, 3),
            (std::vector<int32_t>{4, 9, 2}));  // the three-token match precedes the two-token one
  EXPECT_EQ(prompt_lookup_draft(std::vector<int32_t>{7, 8, 7}, 4), (std::vector<int32_t>{8, 7}));
  EXPECT_EQ(prompt_lookup_draft(std::vector<int32_t>{1, 6, 1, 5, 1}, 1),
            (std::vector<int32_t>{5}));  // the last such match
  EXPECT_EQ(prompt_lookup_draft(std::vector<int32_t>{4, 4}, 9), (std::vector<int32_t>{4}));
  EXPECT_TRUE(prompt_lookup_draft(std::vector<int32_t>{1, 2, 3}, 4).empty());
  EXPECT_TRUE(prompt_lookup_draft(std::vector<int32_t>{1}, 4).empty());
  EXPECT_TRUE(prompt_lookup_draft(ids, 0).empty());
}

TEST(TokenSampler, AgreesWithTheReference) {
  constexpr int64_t vocab = 1013, rows = 40;
  SamplerFixture on(rows, vocab);
  RandomStream random(1, 2);
  int drawn = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<float> logits(static_cast<size_t>(rows * vocab));
    for (float& x : logits) x = static_cast<float>(std::round(random.normal() * 12) / (round % 2 ? 4 : 3.7));
    std::vector<SamplingParams> samplings(rows);
    std::vector<std::vector<int32_t>> texts(rows);
    std::vector<SampleRequest> requests(rows);
    std::vector<SampledToken> expected;
    for (size_t r = 0; r < rows; ++r) {
      SamplingParams& s = samplings[r];
      if (r % 4 != 0) s.temperature = 0.2 + random.uniform_double();
      if (r % 11 == 9) s.temperature = r % 2 == 0 ? 1e-39 : 1e-310;
      if (r % 3 == 1) s.top_k = static_cast<int64_t>(1 + random.below(60));
      if (r % 5 < 2) s.top_p = random.uniform_double();
      if (r % 7 < 3) s.min_p = 0.3 * random.uniform_double();
      if (r % 2 == 1) s.repetition_penalty = 0.5 + random.uniform_double();
      if (r % 6 > 3) s.presence_penalty = s.frequency_penalty = 2 * random.uniform_double() - 1;
      if (r % 8 == 5) s.logit_bias = {{static_cast<int32_t>(random.below(vocab)), 4.5F}, {3, -7}};
      s.top_logprobs = static_cast<int64_t>(r % 5);
      s.seed = r;
      for (uint64_t i = 0; i < 1 + random.below(200); ++i)
        texts[r].push_back(static_cast<int32_t>(random.below(vocab)));
      requests[r].sampling = &s;
      const auto prompt = static_cast<int64_t>(random.below(texts[r].size()));
      requests[r].position = std::ssize(texts[r]);
      requests[r].edits = logit_edits(s, TokenCounts(texts[r], prompt));
      requests[r].masked = r % 9 > 5;
      SamplingContext past{texts[r], prompt, {}};
      if (requests[r].masked) {
        for (uint32_t& word : on.sampler.mask(static_cast<int64_t>(r))) word = random.next_u32() & random.next_u32();
        past.allowed = on.sampler.mask(static_cast<int64_t>(r));
      }
      const std::span<const float> own = std::span(logits).subspan(r * vocab, vocab);
      expected.push_back(sample_token(own, s, past, std::ssize(texts[r])));
      drawn += expected.back().id != static_cast<int32_t>(std::max_element(own.begin(), own.end()) - own.begin());
    }
    const std::vector<SampleResult> found = on.run(logits, requests);
    for (size_t r = 0; r < rows; ++r) {
      ASSERT_EQ(found[r].error, "");
      EXPECT_EQ(found[r].choice.id, expected[r].id) << r;
      const double bound = 16 * tolerance(DType::f32, vocab);
      EXPECT_NEAR(found[r].choice.logprob, expected[r].logprob, bound);
      ASSERT_EQ(found[r].choice.top.size(), expected[r].top.size());
      for (size_t i = 0; i < expected[r].top.size(); ++i) {
        EXPECT_EQ(found[r].choice.top[i].id, expected[r].top[i].id);
        EXPECT_NEAR(found[r].choice.top[i].logprob, expected[r].top[i].logprob, bound);
      }
    }
  }
  EXPECT_GT(drawn, 100) << "only the most likely tokens were sampled: nothing was tested";
}

// More logit edits than one launch can hold, and rows whose logits or masks allow no token.
TEST(TokenSampler, HandlesManyEditsAndRowsWithoutAllowedTokens) {
  constexpr int64_t vocab = 40000, rows = 4;
  SamplerFixture on(rows, vocab);
  std::vector<float> logits(rows * vocab, 1.0F);
  std::vector<int32_t> text(vocab - 1);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
  const SamplingParams sampling{.repetition_penalty = 2};
  std::vector<SampleRequest> requests(rows, SampleRequest{.sampling = &sampling,
                                                          .position = std::ssize(text),
                                                          .edits = logit_edits(sampling, TokenCounts(text, 0))});
  logits[vocab + 7] = INFINITY;
  requests[2].masked = true;
  std::ranges::fill(on.sampler.mask(2), 0U);
  requests[3].error = "no";
  const std::vector<SampleResult> found = on.run(logits, requests);
  EXPECT_EQ(found[0].choice.id, vocab - 1);
  EXPECT_NE(found[1].error.find("not finite"), std::string::npos);
  EXPECT_EQ(found[2].error, "no token is allowed next");
  EXPECT_EQ(found[3].error, "no");
}

}  // namespace
}  // namespace ingot::infer
