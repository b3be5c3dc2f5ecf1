// The simulated GPU reports faults of kernels. The faulty kernels are in faulty.gpu.cpp.
#include "backend/gpu/sim/executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/backend/gpu/faulty.h"

namespace ingot::gpu::sim {
namespace {

struct Outcome {
  std::vector<float> out = std::vector<float>(128, -1.0F);
  std::string error;
};

Outcome run(const std::string& name, int width, Schedule schedule) {
  Outcome outcome;
  Executor executor(width);
  float* address = outcome.out.data();
  for (const KernelInfo& kernel : faulty_kernels()) {
    if (kernel.name != "fault_" + name) continue;
    try {
      executor.run(kernel, static_cast<void*>(&address), {}, 16, schedule);
    } catch (const Error& error) {
      outcome.error = error.message();
      // The executor can be used again after a fault.
      std::vector<float> again(128);
      address = again.data();
      executor.run(faulty_kernels()[0], static_cast<void*>(&address), {}, 0, schedule);
      EXPECT_EQ(again[127], 0.0F);
    }
    return outcome;
  }
  ADD_FAILURE() << "no kernel of the name " << name;
  return outcome;
}

class Faults : public testing::TestWithParam<std::pair<int, Schedule>> {
 protected:
  Outcome run(const std::string& name) { return sim::run(name, GetParam().first, GetParam().second); }
};

TEST_P(Faults, NoneInACorrectKernel) {
  const Outcome outcome = run("none");
  EXPECT_EQ(outcome.error, "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(outcome.out[static_cast<size_t>(i)], static_cast<float>((i + 1) % 128));
}

TEST_P(Faults, MissingBarriersGiveWrongResults) {
  const Outcome block = run("no_barrier");
  int wrong = 0;
  for (int i = 0; i < 128; ++i) wrong += block.out[static_cast<size_t>(i)] != static_cast<float>((i + 1) % 128);
  EXPECT_GT(wrong, 0);
  const Outcome warp = run("no_warp_barrier");
  wrong = 0;
  for (int i = 0; i < 128; ++i) {
    wrong += warp.out[static_cast<size_t>(i)] != static_cast<float>(i + 1);  // the value with barriers
  }
  EXPECT_GT(wrong, 0);
}

TEST_P(Faults, DivergentShufflesAreNamed) {
  EXPECT_NE(run("divergent_shuffle").error.find("while others of its warp wait at line"), std::string::npos);
}

TEST_P(Faults, BarriersThatSomeThreadsSkipAreNamed) {
  const std::string error = run("barrier_not_reached").error;
  EXPECT_NE(error.find("fault_barrier_not_reached"), std::string::npos) << error;
  EXPECT_NE(error.find("127 of 128 threads wait at the barrier of line"), std::string::npos) << error;
}

TEST_P(Faults, ShufflesWithExitedLanesAreNamed) {
  const std::string error = run("lanes_left").error;
  EXPECT_NE(error.find("lanes of a warp wait at line"), std::string::npos) << error;
}

TEST_P(Faults, ASecondSharedMemoryDeclarationIsNamed) {
  EXPECT_NE(run("two_shared").error.find("declares shared memory twice"), std::string::npos);
}

TEST_P(Faults, UninitialisedSharedMemoryReadsAsNaN) {
  for (const float value : run("unset_shared").out) EXPECT_TRUE(std::isnan(value));
}

TEST_P(Faults, PendingAsyncCopiesReadAsNaN) {
  const Outcome copied = run("none_copied");
  EXPECT_EQ(copied.error, "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(copied.out[static_cast<size_t>(i)], i < 120 ? 0.0F : 1.0F);  // -1 + 1, 0 + 1
  for (const char* name : {"copy_not_ended", "copy_too_young"}) {
    for (const float value : run(name).out) EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST_P(Faults, AHardCodedWarpWidthGivesWrongResults) {
  const Outcome outcome = run("width_32");
  if (GetParam().first == 32) {
    EXPECT_EQ(outcome.out[0], 128.0F);
  } else {
    EXPECT_TRUE(std::isnan(outcome.out[0]));  // the block has only two warps for the four sums
  }
}

std::string test_name(const testing::TestParamInfo<std::pair<int, Schedule>>& info) {
  const auto& [width, schedule] = info.param;
  const char* names[] = {"forward", "backward", "random"};
  return "sim" + std::to_string(width) + "_" + names[static_cast<size_t>(schedule)];
}

INSTANTIATE_TEST_SUITE_P(Sim, Faults,
                         testing::Values(std::pair{32, Schedule::forward}, std::pair{32, Schedule::backward},
                                         std::pair{32, Schedule::random}, std::pair{64, Schedule::forward},
                                         std::pair{64, Schedule::backward}, std::pair{64, Schedule::random}),
                         test_name);

}  // namespace
}  // namespace ingot::gpu::sim
