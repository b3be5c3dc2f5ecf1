#include "train/utilisation.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot::train {
namespace {

constexpr StepWork work{.useful = 60, .full_square = 80, .executed = 75};

// Returns these rates one after another, and counts the calls.
struct Measurements {
  std::vector<DeviceRates> rates;
  size_t taken = 0;
  std::function<DeviceRates()> function() {
    return [this] { return rates.at(taken++); };
  }
};

TEST(Utilisation, SharesAreOfPeakAndGemmRate) {
  Utilisation utilisation({.peak = 100, .gemm = 50});
  const auto [shares, warning] = utilisation.of(work, 2);
  EXPECT_EQ(shares.mfu, 0.3);
  EXPECT_EQ(shares.mfu_full_square, 0.4);
  EXPECT_EQ(shares.hfu, 0.375);
  EXPECT_EQ(shares.gemm, 0.6);
  EXPECT_EQ(warning, "");
}

TEST(Utilisation, UnknownRatesGiveNoShare) {
  Utilisation utilisation({.peak = 0, .gemm = 120});
  const auto [shares, warning] = utilisation.of(work, 1);
  EXPECT_FALSE(shares.mfu || shares.mfu_full_square || shares.hfu);
  EXPECT_EQ(shares.gemm, 0.5);
  EXPECT_EQ(warning, "");
}

TEST(Utilisation, TheMeasuredPeakIsAShareOfOne) {
  Utilisation utilisation({.peak = 80, .gemm = 60});
  const auto [shares, warning] = utilisation.of(work, 1);
  EXPECT_EQ(shares.mfu_full_square, 1.0);
  EXPECT_EQ(shares.gemm, 1.0);
  EXPECT_EQ(warning, "");
}

// A datasheet's peak is not measured again: a share above one is withheld, the others are reported, and there is one
// warning.
TEST(Utilisation, SharesAboveOneAreWithheld) {
  Utilisation utilisation({.peak = 70, .gemm = 0});
  const auto [shares, warning] = utilisation.of(work, 1);
  EXPECT_EQ(shares.mfu, 60.0 / 70);
  EXPECT_FALSE(shares.mfu_full_square);
  EXPECT_FALSE(shares.hfu);
  EXPECT_NE(warning.find("not reported"), std::string::npos) << warning;
  const auto [again, quiet] = utilisation.of(work, 1);
  EXPECT_FALSE(again.mfu_full_square);
  EXPECT_EQ(quiet, "");
}

TEST(Utilisation, AShareAboveOneTriggersANewMeasurement) {
  Measurements measurements{{{.peak = 160, .gemm = 90, .date = "now"}}};
  Utilisation utilisation({.peak = 50, .gemm = 100, .date = "then"}, measurements.function());
  const auto [shares, warning] = utilisation.of(work, 1);
  EXPECT_EQ(shares.mfu, 60.0 / 160);
  EXPECT_EQ(shares.mfu_full_square, 0.5);
  EXPECT_EQ(shares.gemm, 0.6);  // the higher of the two measurements
  EXPECT_NE(warning.find("measured again"), std::string::npos) << warning;
  EXPECT_EQ(warning.find("not reported"), std::string::npos) << warning;
  EXPECT_EQ(utilisation.of(work, 1).warning, "");
  EXPECT_EQ(measurements.taken, 1U);
  EXPECT_EQ(utilisation.rates().date, "now");
}

TEST(Utilisation, GemmRatesAreMeasuredAgainToo) {
  Measurements measurements{{{.peak = 400, .gemm = 240}}};
  Utilisation utilisation({.peak = 400, .gemm = 59}, measurements.function());
  EXPECT_EQ(utilisation.of(work, 1).shares.gemm, 0.25);
}

// Measurements are not repeated at every step.
TEST(Utilisation, RepeatedMeasurementsStopAndTheShareIsWithheld) {
  Measurements measurements{{{.peak = 10, .gemm = 9}, {.peak = 30, .gemm = 9}, {.peak = 20, .gemm = 9}}};
  Utilisation utilisation({.peak = 5, .gemm = 0}, measurements.function());
  std::vector<std::string> warnings;
  for (int step = 0; step < 6; ++step) {
    const Utilisation::Result result = utilisation.of(work, 1);
    EXPECT_FALSE(result.shares.mfu || result.shares.hfu || result.shares.mfu_full_square);
    warnings.push_back(result.warning);
  }
  EXPECT_EQ(measurements.taken, 3U);
  EXPECT_EQ(utilisation.rates().peak, 30);
  EXPECT_EQ(warnings[0].find("not reported"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[2].find("not reported"), std::string::npos) << warnings[2];
  for (int step = 3; step < 6; ++step) EXPECT_EQ(warnings[static_cast<size_t>(step)], "");
}

}  // namespace
}  // namespace ingot::train
