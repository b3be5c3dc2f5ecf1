// Every GPU op on the op table's cases, on simulated devices of 32 and 64 lanes, each under two thread schedules.
#include <gtest/gtest.h>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "ops/testing/op_table.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

using gpu::sim::Schedule;

// The sanitizer build looks for memory errors, for which one schedule suffices.
std::vector<Schedule> schedules(int width) {
  if (sanitized) return {Schedule::forward};
  return {Schedule::forward, width == 32 ? Schedule::random : Schedule::backward};
}

struct Choice {
  int width;
  std::string op;
  std::string implementation;
};

std::vector<Choice> choices() {
  ops::Registry registry;
  gpu::register_ops(registry, DeviceKind::sim);
  std::vector<Choice> all;
  for (const ops::Registry::Listing& listing : registry.listings()) {
    for (const std::string& implementation : listing.implementations) {
      for (const int width : {32, 64}) {
        if (width == 64 && implementation == "sm90") continue;  // warpgroups have 32 lanes a warp
        all.push_back({width, listing.op, implementation});
      }
    }
  }
  return all;
}

class SimOpTable : public testing::TestWithParam<Choice> {
 protected:
  SimOpTable() {
    gpu::register_ops(registry_, DeviceKind::sim);
    registry_.select_implementation(GetParam().op, GetParam().implementation);
  }

  ops::Registry registry_;
};

TEST_P(SimOpTable, AgreesWithTheDoubleReferenceUnderEverySchedule) {
  std::vector<std::unique_ptr<gpu::GpuDevice>> devices;
  for (const Schedule schedule : schedules(GetParam().width)) {
    devices.push_back(gpu::sim::make_device(GetParam().width, schedule));
  }
  int accepted = 0;
  for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
    if (op_case.op != GetParam().op || op_case.timing_only) continue;
    ops::testing::OutputBytes expected;
    for (const auto& device : devices) {
      Arena scratch;
      ops::Context context{*device, registry_, scratch, nullptr};
      if (device == devices.front()) {
        const ops::testing::Verdict verdict = ops::testing::compare(context, op_case, 1, &expected);
        EXPECT_NE(verdict.outcome, ops::testing::Outcome::failed) << verdict.text;
        if (verdict.outcome != ops::testing::Outcome::passed) break;
        ++accepted;
        continue;
      }
      EXPECT_TRUE(ops::testing::output_bytes(context, op_case) == expected)
          << op_case.name << ": the result depends on the schedule";
    }
  }
  EXPECT_GT(accepted, 0) << "no case of the op table was accepted";
}

INSTANTIATE_TEST_SUITE_P(Sim, SimOpTable, testing::ValuesIn(choices()), [](const auto& choice) {
  return "sim" + std::to_string(choice.param.width) + "_" + choice.param.op + "_" + choice.param.implementation;
});

}  // namespace
}  // namespace ingot
