// Mixtures of experts on a device whose memory the host does not see: no layer asks the host for anything, and the bits
// do not depend on the micro-batch.
#include <gtest/gtest.h>

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
  bool lora;
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.model << (job.lora ? " LoRA" : ""); }

class ExpertsOnDevice : public testing::TestWithParam<Job> {
 protected:
  ExpertsOnDevice() : sequences_(3, golden_sequence(GetParam().model)) {
    auto device = std::make_unique<CountingGpu>(GetParam().width);
    device_ = device.get();
    machine_.device = std::move(device);
  }

  std::unique_ptr<Bench> bench(int64_t micro, spec::Recompute recompute) {
    const Job& job = GetParam();
    auto made = make_bench(machine_, job.model,
                           {.activation = job.activation, .lora = job.lora, .recompute = recompute, .micro = micro});
    if (job.lora) made->optimizer_state->adapter()->dropout = 0.25F;
    return made;
  }

  // The losses, and the weights after the steps.
  std::vector<std::vector<float>> outcome(int64_t micro, spec::Recompute recompute) {
    const auto made = bench(micro, recompute);
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

TEST_P(ExpertsOnDevice, MicroBatchAndRecomputingChangeNoBit) {
  const auto expected = outcome(1, spec::Recompute::none);
  EXPECT_EQ(outcome(3, spec::Recompute::selective), expected);
  EXPECT_EQ(outcome(2, spec::Recompute::full), expected);
}

INSTANTIATE_TEST_SUITE_P(Jobs, ExpertsOnDevice,
                         testing::Values(Job{"mixtral/a", 32, DType::f32, false},
                                         Job{"qwen3_moe/a", 64, DType::bf16, false},
                                         Job{"mixtral/a", 64, DType::f32, true},
                                         Job{"qwen3_moe/a", 32, DType::bf16, true}),
                         [](const auto& info) { return "job" + std::to_string(info.index); });

}  // namespace
}  // namespace ingot::parity
