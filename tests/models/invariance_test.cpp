// For every family, the result of a step does not depend on the micro-batch, recomputation or threads (bit for bit),
// and it takes exactly the predicted memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/testing/family_specs.h"
#include "tests/train/small_run.h"

namespace ingot::models {
namespace {

using train::SmallRun;

struct Machine {
  int threads;
  int64_t micro;
  spec::Recompute recompute;
};

struct Job {
  spec::ModelSpec spec;
  bool lora = false;
  DType type = DType::f32;
  DType weights = DType::f32;
  bool visible = true;  // with false, experts are computed by grouped gemms
};

// The job, and for a mixture of experts the same with grouped gemms.
std::vector<Job> both_ways(const Job& job) {
  std::vector<Job> jobs = {job};
  if (std::ranges::any_of(job.spec.layers, [](const spec::LayerSpec& layer) { return spec::experts_of(layer.mlp); })) {
    jobs.push_back(job);
    jobs.back().visible = false;
  }
  return jobs;
}

SmallRun::Settings settings_of(const Job& job, const Machine& machine) {
  SmallRun::Settings settings;
  settings.spec = job.spec;
  if (job.lora) {
    settings.lora = train::small_lora();
    settings.lora->dropout = 0.2;
  }
  settings.weights = job.weights;
  settings.visible = job.visible;
  settings.threads = machine.threads;
  settings.step.activation = job.type;
  settings.step.recompute = machine.recompute;
  settings.step.micro = machine.micro;
  return settings;
}

struct Outcome {
  std::vector<double> numbers;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> state;
  bool operator==(const Outcome&) const = default;
};

Outcome three_steps(const Job& job, const Machine& machine) {
  constexpr int64_t sequences = 5;
  SmallRun::Settings settings = settings_of(job, machine);
  if (!job.visible) {  // where the host cannot access memory, sums in fp32 depend on the micro-batch
    settings.types.fixed_point_sums = true;
    settings.step.accumulation_units = sequences;
  }
  SmallRun run(settings);
  if (job.lora) run.randomise_b(9);
  Outcome outcome;
  for (int64_t step = 1; step <= 3; ++step) {
    const train::StepResult result = run.run(step, 1e-2, run.sequences(sequences));
    outcome.numbers.push_back(result.loss);
    outcome.numbers.push_back(result.grad_norm);
  }
  outcome.gradients = train::gradients_of(*run.optimizer_state);
  outcome.state = train::state_of(*run.optimizer_state);
  return outcome;
}

class Invariance : public testing::TestWithParam<FamilyCase> {};

TEST_P(Invariance, ResultsDoNotDependOnMicroBatchRecomputeOrThreads) {
  const std::vector<Job> jobs = {{GetParam().spec},
                                 {GetParam().spec, true},
                                 {GetParam().spec, false, DType::bf16, DType::bf16},
                                 {GetParam().spec, true, DType::bf16, DType::f32}};
  for (const Job& each : jobs) {
    for (const Job& job : both_ways(each)) {
      const Outcome expected = three_steps(job, {1, 1, spec::Recompute::none});
      EXPECT_GT(expected.numbers[1], 0);
      for (const Machine& machine : {Machine{2, 1, spec::Recompute::selective},
                                     {3, 5, spec::Recompute::full},
                                     {1, 2, spec::Recompute::none},
                                     {2, 3, spec::Recompute::selective}}) {
        EXPECT_TRUE(three_steps(job, machine) == expected)
            << name(job.type) << (job.lora ? " LoRA" : " full") << (job.visible ? "" : " grouped") << ", threads "
            << machine.threads << ", micro " << machine.micro << ", recompute " << spec::name(machine.recompute);
      }
    }
  }
}

TEST_P(Invariance, AllocatesExactlyThePredictedBytes) {
  std::vector<Job> jobs = both_ways({GetParam().spec});
  for (const Job& job : both_ways({GetParam().spec, true, DType::bf16, DType::f32})) jobs.push_back(job);
  for (const Job& job : jobs) {
    for (const Machine& machine :
         {Machine{1, 1, spec::Recompute::none}, {3, 3, spec::Recompute::selective}, {2, 2, spec::Recompute::full}}) {
      const SmallRun::Settings settings = settings_of(job, machine);
      SmallRun run(settings);
      const train::StepBytes bytes = train::Step::bytes(
          run.spec, settings.step, run.optimizer_state->lowest_trainable_layer(), job.lora ? settings.lora->rank : 0,
          job.weights != job.type, machine.threads, run.optimizer_state->update_bytes(), job.visible);
      EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch);
      const std::vector<data::PackedSequence> batch = run.sequences(machine.micro + 1);
      EXPECT_FALSE(run.run(1, 1e-3, batch).skipped);
      run.step->evaluate(batch);
      EXPECT_EQ(run.step->peak().saved, bytes.saved) << spec::name(machine.recompute);
      EXPECT_LE(run.step->peak().scratch, bytes.scratch);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Invariance, testing::ValuesIn(family_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
