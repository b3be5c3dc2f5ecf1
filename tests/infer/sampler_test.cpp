#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace ingot::infer {
namespace {

const std::vector<float> logits = {std::log(0.5F), std::log(0.2F), std::log(0.2F), std::log(0.07F), std::log(0.03F)};

std::map<int32_t, double> frequencies(const Sampling& base, std::vector<int32_t> seen = {}) {
  std::map<int32_t, double> count;
  const int draws = 20000;
  for (int64_t position = 0; position < draws; ++position) {
    count[choose(logits, base, seen, position).id] += 1.0 / draws;
  }
  return count;
}

TEST(Sampler, GreedyTakesTheFirstOfTheMostLikely) {
  const std::vector<float> tie = {1, 3, 3, 2};
  const Choice choice = choose(tie, {}, {}, 0);
  EXPECT_EQ(choice.id, 1);
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0);
  EXPECT_NEAR(choice.logprob, 3 - std::log(sum), 1e-6);
}

TEST(Sampler, DrawsByProbability) {
  const auto found = frequencies({.temperature = 1});
  for (size_t i = 0; i < logits.size(); ++i) {  // five standard errors of 20,000 draws
    const double p = std::exp(static_cast<double>(logits[i]));
    EXPECT_NEAR(found.at(static_cast<int32_t>(i)), p, 5 * std::sqrt(p * (1 - p) / 20000)) << i;
  }
}

TEST(Sampler, Filters) {
  const auto kept = [](const Sampling& sampling) {
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

TEST(Sampler, RepetitionPenalty) {
  const std::vector<float> positive = {2.0F, 1.9F};
  const std::vector<int32_t> seen = {0, 0};
  EXPECT_EQ(choose(positive, {.repetition_penalty = 1.2}, seen, 0).id, 1);
  const std::vector<float> negative = {-1.0F, -1.1F};
  EXPECT_EQ(choose(negative, {.repetition_penalty = 1.2}, seen, 0).id, 1);
}

TEST(Sampler, APureFunctionOfSeedAndPosition) {
  for (int64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(choose(logits, {.temperature = 1, .seed = 5}, {}, position).id,
              choose(logits, {.temperature = 1, .seed = 5}, {}, position).id);
  }
  int differ = 0;
  for (int64_t position = 0; position < 100; ++position) {
    differ += choose(logits, {.temperature = 1, .seed = 5}, {}, position).id !=
              choose(logits, {.temperature = 1, .seed = 6}, {}, position).id;
  }
  EXPECT_GT(differ, 30);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(check({.temperature = -1}), Error);
  EXPECT_THROW(check({.temperature = NAN}), Error);
  EXPECT_THROW(check({.top_p = 1.5}), Error);
  EXPECT_THROW(check({.repetition_penalty = 0}), Error);
  const std::vector<float> broken = {1, NAN};
  try {
    choose(broken, {}, {}, 0);
    ADD_FAILURE() << "took a logit that is not a number";
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("fp16"), std::string::npos) << error.hint();
  }
}

}  // namespace
}  // namespace ingot::infer
