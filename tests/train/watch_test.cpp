#include "train/watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"

namespace ingot::train {
namespace {

// A training loss that falls from 10, with noise of standard deviation 0.05.
double loss_at(int64_t step) {
  RandomStream noise(7, static_cast<uint64_t>(step));
  return 3 + 7 * std::exp(-static_cast<double>(step) / 50) + 0.05 * noise.normal();
}

TEST(LossWatch, IsSilentOnANormalRun) {
  LossWatch watch;
  for (int64_t step = 0; step < 3000; ++step) EXPECT_EQ(watch.check(loss_at(step)), "") << step;
}

TEST(LossWatch, ReportsEachSpikeOnce) {
  LossWatch watch;
  for (int64_t step = 0; step < 500; ++step) watch.check(loss_at(step));
  const std::string reported = watch.check(5);
  EXPECT_NE(reported.find("5.0000"), std::string::npos) << reported;
  EXPECT_NE(reported.find("last 64 (median 3.0"), std::string::npos) << reported;
  EXPECT_EQ(watch.check(5.1), "") << "it was reported before";
  EXPECT_EQ(watch.check(loss_at(502)), "");
  EXPECT_NE(watch.check(5), "");
}

TEST(LossWatch, NeedsEarlierFiniteLosses) {
  LossWatch watch;
  for (size_t i = 0; i + 1 < LossWatch::min_losses; ++i) EXPECT_EQ(watch.check(1), "");
  EXPECT_EQ(watch.check(100), "");  // the 20th loss: there are only 19 earlier ones
  EXPECT_EQ(watch.check(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(watch.check(1.04), "");  // equal losses have no deviation, and a rise of a twentieth is ignored
  EXPECT_NE(watch.check(1.06), "");
}

TEST(LoaderWatch, ReportsWhenMoreThanATenthIsWaiting) {
  LoaderWatch watch;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.check(0.09, 1), "");
  std::string reported;
  int64_t times = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string message = watch.check(0.5, 1);
    if (!message.empty()) reported = message;
    times += !message.empty();
  }
  EXPECT_EQ(times, 1);
  EXPECT_NE(reported.find("the last 16 steps spent 1"), std::string::npos)
      << reported;  // the first few of 16 steps are not counted
  for (int i = 0; i < 16; ++i) EXPECT_EQ(watch.check(0, 1), "");
  times = 0;
  for (int i = 0; i < 16; ++i) times += !watch.check(0.5, 1).empty();
  EXPECT_EQ(times, 1) << "waiting had decreased in between";
}

// The ranks' seconds of a step, all with the same number of tokens.
std::vector<RankTime> times(const std::vector<double>& seconds) {
  std::vector<RankTime> all;
  for (const double own_s : seconds) all.push_back({.own_s = own_s, .tokens = 1000});
  return all;
}

TEST(StragglerWatch, ReportsASlowRankOnceAndWhenItIsSlowAgain) {
  StragglerWatch watch({"rank 0 (a)", "rank 1 (b)", "rank 2 (c)"});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(watch.check(times({1, 1.2, 1.1})), "");
  int64_t reported = 0;
  std::string last;
  for (int i = 0; i < 50; ++i) {
    const std::string message = watch.check(times({1, 2, 1}));
    reported += !message.empty();
    if (!message.empty()) last = message;
  }
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(last.find("rank 1 (b) took 1."), 0U) << last;
  for (int i = 0; i < 16; ++i) EXPECT_EQ(watch.check(times({1, 1, 1})), "");
  for (int i = 0; i < 16; ++i) reported += !watch.check(times({1, 2, 1})).empty();
  EXPECT_EQ(reported, 2);
}

TEST(StragglerWatch, ReportsTheSlowerOfTwoRanks) {
  StragglerWatch watch({"rank 0 (a)", "rank 1 (b)"});
  std::string reported;
  for (int i = 0; i < 16; ++i) reported += watch.check({{3, 2, 1000}, {1, 0, 1000}});
  EXPECT_EQ(reported,
            "rank 0 (a) took 3.0 times as long as the other ranks for its part of the last 16 steps, most of it "
            "waiting for data");
}

// Of 5 accumulation units the 2 ranks have 3 and 2.
TEST(StragglerWatch, ExpectsMoreTimeForMoreUnits) {
  StragglerWatch watch({"rank 0 (a)", "rank 1 (b)"});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(watch.check({{1.5, 0, 3000}, {1, 0, 2000}}), "");
  std::string reported;
  for (int i = 0; i < 50; ++i) reported += watch.check({{2.2, 0, 3000}, {1, 0, 2000}});
  EXPECT_EQ(reported.find("rank 0 (a) took 1."), 0U) << reported;
}

TEST(StragglerWatch, IsSilentForASingleRank) {
  StragglerWatch watch({"rank 0 (a)"});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(watch.check(times({i + 1.0})), "");
}

}  // namespace
}  // namespace ingot::train
