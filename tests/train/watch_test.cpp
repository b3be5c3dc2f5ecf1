#include "train/watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"

namespace ingot::train {
namespace {

// A loss that falls from 10 as training does, with noise of deviation 0.05.
double loss_at(int64_t step) {
  RandomStream noise(7, static_cast<uint64_t>(step));
  return 3 + 7 * std::exp(-static_cast<double>(step) / 50) + 0.05 * noise.normal();
}

TEST(LossWatch, IsSilentOnARunAsItShouldBe) {
  LossWatch watch;
  for (int64_t step = 0; step < 3000; ++step) EXPECT_EQ(watch.look(loss_at(step)), "") << step;
}

TEST(LossWatch, TellsASpikeOnceAndTheNextOne) {
  LossWatch watch;
  for (int64_t step = 0; step < 500; ++step) watch.look(loss_at(step));
  const std::string told = watch.look(5);
  EXPECT_NE(told.find("5.0000"), std::string::npos) << told;
  EXPECT_NE(told.find("last 64 (median 3.0"), std::string::npos) << told;
  EXPECT_EQ(watch.look(5.1), "") << "it was told already";
  EXPECT_EQ(watch.look(loss_at(502)), "");
  EXPECT_NE(watch.look(5), "");
}

TEST(LossWatch, NeedsLossesToCompareWithAndNumbers) {
  LossWatch watch;
  for (size_t i = 0; i + 1 < LossWatch::least; ++i) EXPECT_EQ(watch.look(1), "");
  EXPECT_EQ(watch.look(100), "");  // the 20th: there are 19 to compare with
  EXPECT_EQ(watch.look(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(watch.look(1.04), "");  // equal losses have no deviation, but a twentieth is nothing
  EXPECT_NE(watch.look(1.06), "");
}

TEST(LoaderWatch, TellsWhenMoreThanATenthIsWaiting) {
  LoaderWatch watch;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.look(0.09, 1), "");
  std::string told;
  int64_t times = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string one = watch.look(0.5, 1);
    if (!one.empty()) told = one;
    times += !one.empty();
  }
  EXPECT_EQ(times, 1);
  EXPECT_NE(told.find("waited for data for 1"), std::string::npos) << told;  // of 16 steps the first few have not
  for (int i = 0; i < 16; ++i) EXPECT_EQ(watch.look(0, 1), "");
  times = 0;
  for (int i = 0; i < 16; ++i) times += !watch.look(0.5, 1).empty();
  EXPECT_EQ(times, 1) << "it had been better in between";
}

}  // namespace
}  // namespace ingot::train
