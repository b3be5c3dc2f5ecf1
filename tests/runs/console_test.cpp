#include "runs/console.h"

#include <gtest/gtest.h>

namespace ingot::runs {
namespace {

train::StepEvent step(int64_t number, double tflops, double seconds) {
  train::StepEvent event;
  event.step = number;
  event.tflops = tflops;
  event.step_s = seconds;
  event.tokens_per_s = tflops;
  return event;
}

class ConsoleTest : public testing::Test {
 protected:
  // The summary of a run with these steps, whose peak is 2 TFLOP/s at the start and `peak` at the end.
  Console::Summary summary(const std::vector<train::StepEvent>& steps, double peak) {
    Console console(log_, true);
    console.on_start({.name = "run", .steps = std::ssize(steps), .rates = {2e12, 1e12, "then"}});
    for (const train::StepEvent& event : steps) console.on_step(event);
    console.on_end({.reason = "done", .rates = {peak, 1e12, "now"}});
    return console.summary();
  }

  Log log_{LogLevel::error};
};

// (2 * 1 + 1 * 3) / 4 TFLOP/s, without the first step.
TEST_F(ConsoleTest, MfuUsesThePeakAtTheEnd) {
  const std::vector<train::StepEvent> steps = {step(1, 0.1, 9), step(2, 2, 1), step(3, 1, 3)};
  const Console::Summary raised = summary(steps, 2.5e12);
  EXPECT_DOUBLE_EQ(raised.mean_mfu.value(), 0.5);
  EXPECT_DOUBLE_EQ(raised.mean_tokens_per_s, 1.25);
  EXPECT_EQ(raised.end.rates.date, "now");
  EXPECT_FALSE(summary(steps, 1e12).mean_mfu);  // above the peak
  EXPECT_FALSE(summary(steps, 0).mean_mfu);     // the peak is unknown
  EXPECT_DOUBLE_EQ(summary({step(1, 1, 9)}, 4e12).mean_mfu.value(), 0.25);
  EXPECT_FALSE(summary({}, 4e12).mean_mfu);
}

}  // namespace
}  // namespace ingot::runs
