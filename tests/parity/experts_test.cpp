// Mixtures of experts on a device whose memory the host does not see: no layer asks the host for anything, the bits do
// not depend on the micro-batch, and experts may have no rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

constexpr int64_t steps = 2;
const std::vector<int64_t> samples{0, 1, 2};

struct Job {
  const char* model;
  int width;
  DType activation;
  bool lora;  // of every linear layer, with dropout
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.model << (job.lora ? " LoRA" : ""); }

class ExpertsOnDevice : public testing::TestWithParam<Job> {
 protected:
  ExpertsOnDevice() : sequences_(different_sequences(GetParam().model, 3)) {
    auto device = std::make_unique<CountingGpu>(GetParam().width);
    device_ = device.get();
    machine_.device = std::move(device);
  }

  std::unique_ptr<Bench> bench(int64_t micro, spec::Recompute recompute, bool bitwise = false) {
    const Job& job = GetParam();
    BenchSettings settings{.activation = job.activation, .recompute = recompute, .micro = micro};
    settings.types.fixed_point_sums = bitwise;
    if (job.lora) {
      settings.new_adapter = spec::LoraSpec{.rank = 4, .alpha = 8, .dropout = 0.25, .targets = {"all-linear"}};
    }
    return make_bench(machine_, job.model, settings);
  }

  // The losses, and the weights after the steps.
  std::vector<std::vector<float>> outcome(int64_t micro, spec::Recompute recompute, bool bitwise) {
    const auto made = bench(micro, recompute, bitwise);
    std::vector<std::vector<float>> all(1);
    for (int64_t s = 1; s <= steps; ++s) {
      const train::StepResult result = made->step->run(s, 1e-3, sequences_, samples);
      EXPECT_FALSE(result.skipped);
      all[0].push_back(static_cast<float>(result.loss));
    }
    for (const train::TrainedParameter& t : made->optimizer_state->tensors()) all.push_back(floats(*device_, t.master));
    return all;
  }

  CountingGpu* device_ = nullptr;
  Machine machine_{1, "sim32"};
  std::vector<data::PackedSequence> sequences_;
};

TEST_P(ExpertsOnDevice, NoCopyIsWaitedForInAStep) {
  const auto made = bench(2, spec::Recompute::selective);
  const int allocations = device_->allocations;
  const int copies = device_->waiting_copies;
  made->step->begin(1, 1e-3, sequences_, samples);
  made->step->begin(2, 1e-3, sequences_, samples);
  EXPECT_FALSE(made->step->finish().skipped);
  EXPECT_FALSE(made->step->finish().skipped);
  made->step->evaluate(sequences_);
  EXPECT_EQ(device_->allocations, allocations);
  EXPECT_EQ(device_->waiting_copies, copies);
}

TEST_P(ExpertsOnDevice, RecomputingChangesNoBitAndTheMicroBatchNoneOfFixedPointSums) {
  const auto expected = outcome(1, spec::Recompute::none, true);
  EXPECT_EQ(outcome(3, spec::Recompute::selective, true), expected);
  EXPECT_EQ(outcome(2, spec::Recompute::full, true), expected);
  EXPECT_EQ(outcome(2, spec::Recompute::full, false), outcome(2, spec::Recompute::none, false));
}

// Names of the trained tensors whose gradient is zero after a step on a sequence of one token, whose router chooses the
// same experts again and again.
std::vector<std::string> without_gradient(Machine& machine, const char* model) {
  const auto made = make_bench(machine, model, {});
  data::PackedSequence sequence = golden_sequence(model);
  std::fill(sequence.ids.begin(), sequence.ids.end(), 3);
  const train::StepResult result = made->step->run(1, 1e-3, std::vector(2, sequence), std::vector<int64_t>{0, 1});
  EXPECT_FALSE(result.skipped);
  EXPECT_GT(result.grad_norm, 0);
  std::vector<std::string> names;
  for (const train::TrainedParameter& t : made->optimizer_state->tensors()) {
    if (norm(floats(*machine.device, t.gradient)) == 0) names.push_back(t.name);
  }
  return names;
}

TEST(ExpertsWithoutRows, HaveZeroGradients) {
  for (const char* model : {"mixtral/a", "qwen3_moe/a"}) {
    Machine cpu{1, "cpu"}, gpu{1, "sim32"};
    const std::vector<std::string> expected = without_gradient(cpu, model);
    EXPECT_GT(std::ranges::count_if(expected,
                                    [](const std::string& name) { return name.find("experts") != std::string::npos; }),
              0);
    EXPECT_EQ(without_gradient(gpu, model), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, ExpertsOnDevice,
                         testing::Values(Job{"mixtral/a", 32, DType::f32, false},
                                         Job{"qwen3_moe/a", 64, DType::bf16, false},
                                         Job{"mixtral/a", 64, DType::f32, true},
                                         Job{"qwen3_moe/a", 32, DType::bf16, true}),
                         [](const auto& info) { return "job" + std::to_string(info.index); });

}  // namespace
}  // namespace ingot::parity
