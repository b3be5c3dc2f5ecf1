// Context-parallel ranks on CPUs and simulated GPUs: the gradients of torch, and those of one rank; and probes of their
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "comm/in_process.h"
#include "tensor/tolerance.h"
#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"
#include "train/memory_probe.h"

namespace ingot::parity {
namespace {

using enum spec::CpCommType;

constexpr int64_t sample = 0;

const char* name_of_type(spec::CpCommType type) {
  return type == a2a ? "a2a" : type == allgather ? "allgather" : "p2p";
}

// Mean gradients of the golden sequence.
struct Gradients {
  double loss = 0;
  std::map<std::string, std::vector<float>> tensors;
  // |found - exact| / |exact| over all tensors, where exact are torch's in fp32.
  double relative_error(const std::string& model, const spec::ModelSpec& spec) const {
    const formats::SafetensorsFile state(golden_folder(model) / "state.safetensors");
    double apart = 0, size = 0;
    for (const auto& [name, found] : tensors) {
      const std::vector<float> exact = of_parameter(state, spec, "grad", name);
      apart += std::pow(distance(found, exact), 2);
      size += std::pow(norm(exact), 2);
    }
    return std::sqrt(apart / size);
  }
};

class ContextParallel : public testing::TestWithParam<Subject> {
 protected:
  const std::string& model() const { return GetParam().model; }

  // Of rank 0. Each rank's step takes the memory that is planned for it.
  Gradients gradients(int ranks, DType activation, spec::CpCommType type) {
    Gradients result;
    comm::run_in_process({.ranks = ranks, .timeout_s = 300}, [&](const comm::Group& world) {
      Machine machine(1, GetParam().device);
      const auto bench = make_bench(machine, model(), {.activation = activation, .ranks = world, .cp_comm_type = type});
      const data::PackedSequence sequence = golden_sequence(model());
      const train::StepResult step = bench->step->run(1, 0, {&sequence, 1}, {&sample, 1});
      const train::OptimizerState& state = *bench->optimizer_state;
      const train::StepBytes planned =
          train::Step::bytes(bench->loaded.spec, bench->step->settings(), state.lowest_trainable_layer(), 0, false, 1,
                             state.update_bytes(), machine.device->host_visible(), state.share());
      EXPECT_EQ(bench->step->peak().saved, planned.saved);
      EXPECT_LE(bench->step->peak().scratch, planned.scratch);
      if (world.rank() > 0) return;
      spec_ = bench->loaded.spec;
      result.loss = step.loss;
      for (const train::TrainedParameter& t : state.tensors()) {
        std::vector<float> mean = floats(*machine.device, t.gradient);
        for (float& g : mean) g /= static_cast<float>(step.loss_tokens);
        result.tensors.emplace(t.name, std::move(mean));
      }
    });
    return result;
  }

  spec::ModelSpec spec_;
};

// Chunks of the ranks begin and end within documents.
TEST_P(ContextParallel, LossAndEveryGradientAgree) {
  const formats::SafetensorsFile state(golden_folder(model()) / "state.safetensors");
  const double loss = gradients(1, DType::f32, a2a).loss;
  for (const auto& [type, ranks] :
       std::vector<std::pair<spec::CpCommType, int>>{{a2a, 2}, {allgather, 2}, {allgather, 4}, {p2p, 2}, {p2p, 4}}) {
    const Gradients found = gradients(ranks, DType::f32, type);
    const double bound = tolerance(DType::f32, chain_length(spec_, 32));
    EXPECT_NEAR(found.loss / loss, 1, bound);
    for (const auto& [name, mean] : found.tensors) {
      const std::vector<float> exact = of_parameter(state, spec_, "grad", name);
      EXPECT_LT(distance(mean, exact), bound * norm(exact) + error_multiple * floats(state, "grad_error." + name).at(0))
          << name << ", " << ranks << " ranks, " << name_of_type(type);
    }
  }
}

// The error of two ranks' gradients in bf16 may be at most 1.5 times that of one rank's.
TEST_P(ContextParallel, Bf16ErrorIsNearThatOfOneRank) {
  const Gradients one = gradients(1, DType::bf16, a2a);
  const double allowed = 1.5 * one.relative_error(model(), spec_);
  for (const spec::CpCommType type : {a2a, allgather, p2p}) {
    const Gradients found = gradients(2, DType::bf16, type);
    const double error = found.relative_error(model(), spec_);
    EXPECT_LT(error, allowed) << name_of_type(type);
    EXPECT_GT(error, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextParallel, testing::ValuesIn(golden_subjects()), name_of);

class ContextParallelProbes : public testing::TestWithParam<std::tuple<int, spec::CpCommType>> {};
INSTANTIATE_TEST_SUITE_P(Sim, ContextParallelProbes,
                         testing::Combine(testing::Values(32, 64), testing::Values(a2a, allgather, p2p)));

// A rank whose device has no memory for the probe is not waited for.
TEST_P(ContextParallelProbes, DoNotCommunicate) {
  const int width = std::get<0>(GetParam());
  const spec::CpCommType type = std::get<1>(GetParam());
  const std::string model = "llama/a";
  comm::run_in_process({.ranks = 2, .timeout_s = 300}, [&](const comm::Group& world) {
    Machine machine(1, "sim32");
    auto device = std::make_unique<CountingGpu>(width);
    CountingGpu& memory = *device;
    machine.device = std::move(device);
    const auto bench = make_bench(machine, model, {.ranks = world, .cp_comm_type = type});
    const comm::Grid grid = bench->step->grid();
    const train::StepSettings settings = bench->step->settings();
    bench->step.reset();
    const std::vector<data::PackedSequence> sequences = {golden_sequence(model)};
    const auto probe = [&] {
      return train::probe_memory(*machine.device, machine.registry, machine.threads, *bench->model,
                                 *bench->optimizer_state, settings, false, sequences, {&sample, 1}, grid);
    };
    if (world.rank() == 1) memory.max_bytes = 1;
    EXPECT_THROW(probe(), Error);
    memory.max_bytes = CountingGpu::no_limit;
    const train::ProbedStep tried = probe();
    EXPECT_EQ(tried.shortage, "");
    EXPECT_TRUE(std::isfinite(tried.step->run(1, 1e-3, sequences, {&sample, 1}).loss));
  });
}

}  // namespace
}  // namespace ingot::parity
