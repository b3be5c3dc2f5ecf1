// Every GPU op on the op table's cases, on simulated devices of 32 and 64 lanes and under three schedules.
#include <gtest/gtest.h>

#include "app/bench/op_table.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"

namespace ingot {
namespace {

using gpu::sim::Schedule;

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
      for (const int width : {32, 64}) all.push_back({width, listing.op, implementation});
    }
  }
  return all;
}

class SimOpTable : public testing::TestWithParam<Choice> {
 protected:
  SimOpTable() {
    gpu::register_ops(registry_, DeviceKind::sim);
    registry_.restrict_to(GetParam().op, GetParam().implementation);
  }

  // Calls `check` with a context and every case of the op, under each schedule.
  template <class Check>
  void each_case(Check check) {
    for (const Schedule schedule : {Schedule::forward, Schedule::backward, Schedule::random}) {
      const auto device = gpu::sim::make_device(GetParam().width, schedule);
      Arena scratch;
      ops::Context context{*device, registry_, scratch, nullptr};
      for (const bench::OpCase& op_case : bench::op_cases()) {
        if (op_case.op == GetParam().op && !op_case.timing_only) check(context, op_case);
      }
    }
  }

  ops::Registry registry_;
};

TEST_P(SimOpTable, AgreesWithTheDoubleReference) {
  int accepted = 0;
  each_case([&](ops::Context& context, const bench::OpCase& op_case) {
    const bench::Verdict verdict = bench::compare(context, op_case);
    EXPECT_NE(verdict.outcome, bench::Outcome::failed) << verdict.text;
    if (verdict.outcome != bench::Outcome::declined) ++accepted;
  });
  EXPECT_GT(accepted, 0) << "no case of the table runs";
}

TEST_P(SimOpTable, BitsDoNotDependOnTheSchedule) {
  std::map<std::string, std::vector<std::vector<std::byte>>> first;
  each_case([&](ops::Context& context, const bench::OpCase& op_case) {
    const auto bytes = bench::output_bytes(context, op_case);
    const auto [at, added] = first.emplace(op_case.name, bytes);
    EXPECT_TRUE(at->second == bytes) << op_case.op << " " << op_case.name;
  });
}

INSTANTIATE_TEST_SUITE_P(Sim, SimOpTable, testing::ValuesIn(choices()), [](const auto& info) {
  return "sim" + std::to_string(info.param.width) + "_" + info.param.op + "_" + info.param.implementation;
});

}  // namespace
}  // namespace ingot
