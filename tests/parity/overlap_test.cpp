// Training on an asynchronous device gives the results of waiting for every step, without waits or allocations in a
// step.
#include <gtest/gtest.h>

#include <utility>

#include "backend/cpu/ops.h"
#include "comm/in_process.h"
#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

using gpu::sim::Schedule;

constexpr const char* model = "llama/a";
constexpr int64_t overlap_steps = 4;

struct Trace {
  std::unique_ptr<Bench> bench;
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> weights;
};

// Steps of three micro-batches, one more than can be in flight.
const std::vector<data::PackedSequence>& sequences() {
  static const std::vector<data::PackedSequence> all(3, golden_sequence(model));
  return all;
}
const std::vector<int64_t> overlap_samples{0, 1, 2};

Trace run_steps(Machine& machine, bool ahead, const BenchSettings& settings) {
  Trace run{make_bench(machine, model, settings), {}, {}, {}};
  train::Step& step = *run.bench->step;
  const auto begin = [&](int64_t s) {
    if (s <= overlap_steps) step.begin(s, 1e-3, sequences(), overlap_samples);
  };
  if (ahead) begin(1);
  for (int64_t s = 1; s <= overlap_steps; ++s) {
    begin(ahead ? s + 1 : s);
    train::StepResult result = step.finish();
    while (result.retry) {
      begin(s);
      if (ahead) begin(s + 1);
      result = step.finish();
    }
    EXPECT_FALSE(result.skipped);
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
  }
  for (const train::TrainedParameter& t : run.bench->optimizer_state->tensors()) {
    run.weights.push_back(floats(*machine.device, t.master));
    run.weights.push_back(floats(*machine.device, t.weight));
  }
  return run;
}

class Overlap : public testing::TestWithParam<Schedule> {
 protected:
  Overlap() {
    auto device = std::make_unique<CountingGpu>(32, GetParam());
    device_ = device.get();
    machine_.device = std::move(device);
    cpu::register_ops(machine_.registry);  // of updates on the host
  }
  Trace run(bool ahead, const BenchSettings& settings = {}) { return run_steps(machine_, ahead, settings); }

  CountingGpu* device_ = nullptr;
  Machine machine_{1, "sim32"};
};

TEST_P(Overlap, StepsInFlightGiveTheSameResults) {
  const Trace expected = run(false);
  const Trace found = run(true);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.weights, expected.weights);
  EXPECT_LT(found.losses.back(), found.losses.front());
}

// Copies of gradients and weights that the copy stream runs as early or as late as it may.
TEST_P(Overlap, UpdatesOnTheHostGiveTheSameResults) {
  BenchSettings settings{.activation = DType::bf16};
  const Trace expected = run(false, settings);
  settings.types.offload = true;
  const Trace found = run(true, settings);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.weights, expected.weights);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
}

// Also what ranks gather of each other's updated weights, by way of the host.
TEST_P(Overlap, UpdatesOnTheHostsOfRanksGiveTheSameResults) {
  for (const auto& [zero, fixed] : {std::pair(1, true), std::pair(2, false)}) {
    comm::run_in_process({.ranks = 2, .timeout_s = 300}, [&](const comm::Group& world) {
      Machine machine(1, "sim32");
      machine.device = std::make_unique<CountingGpu>(32, GetParam());
      cpu::register_ops(machine.registry);
      BenchSettings settings{.activation = DType::bf16, .ranks = world, .zero = zero};
      settings.types.fixed_point_sums = fixed;
      const Trace expected = run_steps(machine, false, settings);
      settings.types.offload = true;
      const Trace found = run_steps(machine, true, settings);
      EXPECT_EQ(found.losses, expected.losses);
      EXPECT_EQ(found.norms, expected.norms);
      EXPECT_EQ(found.weights, expected.weights) << "zero " << zero;
    });
  }
}

TEST_P(Overlap, StepsNeitherAllocateNorWaitForCopies) {
  for (const bool offload : {false, true}) {
    BenchSettings settings{.activation = offload ? DType::bf16 : DType::f32};
    settings.types.offload = offload;
    const auto bench = make_bench(machine_, model, settings);
    const int allocations = device_->allocations;
    const int copies = device_->waiting_copies;
    bench->step->begin(1, 1e-3, sequences(), overlap_samples);
    bench->step->begin(2, 1e-3, sequences(), overlap_samples);
    bench->step->finish();
    bench->step->finish();
    bench->step->evaluate(sequences());
    EXPECT_EQ(device_->allocations, allocations);
    EXPECT_EQ(device_->waiting_copies, copies);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Overlap, testing::Values(Schedule::forward, Schedule::backward, Schedule::random),
                         [](const auto& info) {
                           if (info.param == Schedule::forward) return "forward";
                           return info.param == Schedule::backward ? "backward" : "random";
                         });

}  // namespace
}  // namespace ingot::parity
