#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ingot::train {
namespace {

TEST(Schedule, WarmsUpThenFollowsItsName) {
  Schedule s{ScheduleName::linear, 1.0, 0.1, 4, 14};
  EXPECT_DOUBLE_EQ(s.at(1), 0.2);
  EXPECT_DOUBLE_EQ(s.at(4), 0.8);
  EXPECT_DOUBLE_EQ(s.at(5), 1.0);
  EXPECT_DOUBLE_EQ(s.at(14), 0.1);
  EXPECT_NEAR(s.at(8), 0.7, 1e-12);
  s.name = ScheduleName::cosine;
  EXPECT_DOUBLE_EQ(s.at(5), 1.0);
  EXPECT_NEAR(s.at(14), 0.1, 1e-12);
  EXPECT_NEAR(s.at(8), 0.1 + 0.9 * (1 + std::cos(M_PI / 3)) / 2, 1e-12);
  s.name = ScheduleName::constant;
  EXPECT_DOUBLE_EQ(s.at(14), 1.0);
}

TEST(Schedule, HandlesOneStepAndNoWarmUp) {
  for (const ScheduleName name : {ScheduleName::constant, ScheduleName::linear, ScheduleName::cosine}) {
    EXPECT_DOUBLE_EQ((Schedule{name, 0.5, 0, 0, 1}).at(1), 0.5);
  }
}

TEST(Warmup, IsStepsOrAShareOfTheRun) {
  EXPECT_EQ(Warmup{.steps = 7}.in(20), 7);
  EXPECT_EQ(Warmup{.steps = 7}.in(5), 7);  // more than the run: its reader refuses it
  const Warmup share{.percent = 5};
  EXPECT_EQ(share.in(86), 4);
  EXPECT_EQ(share.in(8), 0);
  EXPECT_EQ(share.in(1), 0);
  EXPECT_EQ(Warmup{.percent = 29}.in(100), 29);
  EXPECT_EQ(Warmup{.percent = 99.99999999999999}.in(int64_t{1} << 50), (int64_t{1} << 50) - 1);
}

}  // namespace
}  // namespace ingot::train
