#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "ops/sampling_weight.h"

namespace ingot::infer {
namespace {

const std::vector<float> logits = {std::log(0.5F), std::log(0.2F), std::log(0.2F), std::log(0.07F), std::log(0.03F)};

std::map<int32_t, double> frequencies(const SamplingParams& base, std::vector<int32_t> seen = {}) {
  std::map<int32_t, double> count;
  const int draws = 20000;
  for (int64_t position = 0; position < draws; ++position) {
    count[sample_token(logits, base, {.ids = seen}, position).id] += 1.0 / draws;
  }
  return count;
}

TEST(Sampler, GreedyTakesTheFirstOfEquallyLikelyTokens) {
  const std::vector<float> tie = {1, 3, 3, 2};
  const SampledToken choice = sample_token(tie, {}, {}, 0);
  EXPECT_EQ(choice.id, 1);
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0);
  EXPECT_NEAR(choice.logprob, 3 - std::log(sum), 1e-6);
}

TEST(Sampler, SamplesByProbability) {
  const auto found = frequencies({.temperature = 1});
  for (size_t i = 0; i < logits.size(); ++i) {  // five standard errors of 20,000 draws
    const double p = std::exp(static_cast<double>(logits[i]));
    EXPECT_NEAR(found.at(static_cast<int32_t>(i)), p, 5 * std::sqrt(p * (1 - p) / 20000)) << i;
  }
}

TEST(Sampler, FiltersKeepTheRightTokens) {
  const auto kept = [](const SamplingParams& sampling) {
    std::vector<int32_t> ids;
    for (const auto& [id, share] : frequencies(sampling)) ids.push_back(id);
    return ids;
  };
  EXPECT_EQ(kept({.temperature = 1, .top_k = 2}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.5}), (std::vector<int32_t>{0}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.6}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.91}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.3}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept({.temperature = 0.01}), (std::vector<int32_t>{0}));
}

TEST(Sampler, RepetitionPenaltyScalesSeenTokens) {
  const std::vector<float> positive = {2.0F, 1.9F};
  const std::vector<int32_t> seen = {0, 0};
  EXPECT_EQ(sample_token(positive, {.repetition_penalty = 1.2}, {.ids = seen}, 0).id, 1);
  const std::vector<float> negative = {-1.0F, -1.1F};
  EXPECT_EQ(sample_token(negative, {.repetition_penalty = 1.2}, {.ids = seen}, 0).id, 1);
}

// OpenAI's rule: each token of the output loses the presence penalty once and the frequency penalty per occurrence;
// prompt tokens do not count.
TEST(Sampler, PresenceAndFrequencyPenaltiesCountTheOutputOnly) {
  const std::vector<int32_t> ids = {2, 2, 2, 0, 1, 0};  // the first three are the prompt
  const TokenCounts past(ids, 3);
  const std::vector<LogitEdit> edits =
      logit_edits({.presence_penalty = 0.5, .frequency_penalty = 0.25, .logit_bias = {{1, 3}, {4, -1}, {4, -2}}}, past);
  ASSERT_EQ(edits.size(), 3U);
  EXPECT_EQ(edits[0].id, 0);
  EXPECT_FLOAT_EQ(edits[0].add, -1.0F);
  EXPECT_EQ(edits[1].id, 1);
  EXPECT_FLOAT_EQ(edits[1].add, 2.25F);
  EXPECT_EQ(edits[2].id, 4);
  EXPECT_FLOAT_EQ(edits[2].add, -3.0F);
  const std::vector<float> close = {2.0F, 1.9F, 1.8F};
  const std::vector<int32_t> chosen = {0};
  EXPECT_EQ(sample_token(close, {.presence_penalty = 0.15}, {.ids = chosen}, 0).id, 1);
  EXPECT_EQ(sample_token(close, {.presence_penalty = 0.15}, {.ids = chosen, .prompt = 1}, 0).id, 0);
  EXPECT_EQ(sample_token(close, {.frequency_penalty = 0.15}, {.ids = chosen}, 0).id, 1);
  EXPECT_EQ(sample_token(close, {.logit_bias = {{2, 0.3F}}}, {}, 0).id, 2);
}

TEST(Sampler, OnlyAllowedTokensAreSampled) {
  const std::vector<uint32_t> bits = {0b10100};
  EXPECT_EQ(sample_token(logits, {}, {.allowed = bits}, 0).id, 2);
  std::map<int32_t, int> count;
  for (int64_t position = 0; position < 500; ++position) {
    ++count[sample_token(logits, {.temperature = 1}, {.allowed = bits}, position).id];
  }
  EXPECT_EQ(count.size(), 2U);
  EXPECT_GT(count[2], count[4]);
  const std::vector<uint32_t> none = {0};
  EXPECT_THROW(sample_token(logits, {}, {.allowed = none}, 0), Error);
}

TEST(Sampler, TopLogprobsAreOfTheUnchangedLogits) {
  const std::vector<uint32_t> bits = {0b10000};
  const SampledToken choice =
      sample_token(logits, {.temperature = 0.3, .logit_bias = {{3, 50}}, .top_logprobs = 3}, {.allowed = bits}, 0);
  EXPECT_EQ(choice.id, 4);
  EXPECT_NEAR(choice.logprob, std::log(0.03), 1e-6);
  ASSERT_EQ(choice.top.size(), 3U);
  const double expected[] = {0.5, 0.2, 0.2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(choice.top[i].id, static_cast<int32_t>(i));
    EXPECT_NEAR(choice.top[i].logprob, std::log(expected[i]), 1e-6);
  }
}

TEST(SamplingWeight, IsAPower) {
  for (float power = 0; power > -30; power -= 0.0173F) {
    const double exact = std::exp2(static_cast<double>(power)) * 0x1p40;
    EXPECT_NEAR(static_cast<double>(ops::sampling_weight(power)), exact, exact * 0x1p-26 + 1) << power;
  }
  EXPECT_EQ(ops::sampling_weight(0), ops::sampling_one);
  for (float power = -41; power > -200; power -= 0.37F) EXPECT_EQ(ops::sampling_weight(power), 0U) << power;
  EXPECT_EQ(ops::sampling_weight(-INFINITY), 0U);
  EXPECT_EQ(ops::multiply_high(0xfedcba9876543210U, 0x123456789abcdef0U), 0x121fa00ad77d7422U);
  EXPECT_EQ(ops::scaled_fraction(uint64_t{1} << 58, (uint64_t{1} << 31) + 1),
            (uint64_t{1} << 57) + (uint64_t{1} << 26));
}

TEST(Sampler, IsAPureFunctionOfSeedAndPosition) {
  for (int64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(sample_token(logits, {.temperature = 1, .seed = 5}, {}, position).id,
              sample_token(logits, {.temperature = 1, .seed = 5}, {}, position).id);
  }
  int differ = 0;
  for (int64_t position = 0; position < 100; ++position) {
    differ += sample_token(logits, {.temperature = 1, .seed = 5}, {}, position).id !=
              sample_token(logits, {.temperature = 1, .seed = 6}, {}, position).id;
  }
  EXPECT_GT(differ, 30);
}

TEST(Sampler, RejectsInvalidSettings) {
  EXPECT_THROW(check({.temperature = -1}), Error);
  EXPECT_THROW(check({.temperature = NAN}), Error);
  EXPECT_THROW(check({.top_p = 1.5}), Error);
  EXPECT_THROW(check({.repetition_penalty = 0}), Error);
  EXPECT_THROW(check({.presence_penalty = 2.1}), Error);
  EXPECT_THROW(check({.frequency_penalty = -2.1}), Error);
  EXPECT_THROW(check({.logit_bias = {{1, 101}}}), Error);
  EXPECT_THROW(check({.top_logprobs = 21}), Error);
  const std::vector<float> broken = {1, NAN};
  try {
    sample_token(broken, {}, {}, 0);
    ADD_FAILURE() << "a NaN logit was accepted";
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("fp16"), std::string::npos) << error.hint();
  }
}

}  // namespace
}  // namespace ingot::infer
