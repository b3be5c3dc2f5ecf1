// Tiny random models of every family compared with torch, transformers and peft on the CPU and simulated GPUs: logits,
// loss, every gradient, ten AdamW steps, ten LoRA steps.
#include "tests/parity/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tensor/tolerance.h"

namespace ingot::parity {
namespace {

class Golden : public testing::TestWithParam<Subject> {
 protected:
  const std::string& model() const { return GetParam().model; }
  std::vector<float> values(const Tensor& tensor) { return floats(*machine_.device, tensor); }
  formats::SafetensorsFile golden(const std::string& file) const {
    return formats::SafetensorsFile(golden_folder(model()) / file);
  }
  nlohmann::json facts() const { return nlohmann::json::parse(read_file(golden_folder(model()) / "golden.json")); }
  double bound(const Bench& bench) const { return tolerance(DType::f32, chain_length(bench.loaded.spec, 32)); }
  void ten_steps(Bench& bench, const formats::SafetensorsFile& expected, const std::string& prefix) {
    expect_ten_steps(machine_, bench, model(), expected, prefix, 1e-3);
  }

  Machine machine_{2, GetParam().device};
};

TEST_P(Golden, LogitsAgree) {
  const auto bench = make_bench(machine_, model(), {});
  const std::vector<float> found = logits(machine_, *bench, model(), DType::f32);
  EXPECT_LT(relative_error(found, floats(golden("state.safetensors"), "logits")), bound(*bench));
}

TEST_P(Golden, LossAndEveryGradientAgree) {
  const formats::SafetensorsFile state = golden("state.safetensors");
  for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    const auto bench = make_bench(machine_, model(), {.recompute = recompute});
    const data::PackedSequence sequence = golden_sequence(model());
    const int64_t sample = 0;
    const train::StepResult result = bench->step->run(1, 0, {&sequence, 1}, {&sample, 1});
    EXPECT_NEAR(result.loss / facts().at("loss").get<double>(), 1, bound(*bench));
    for (const train::TrainedParameter& t : bench->optimizer_state->tensors()) {
      std::vector<float> mean = values(t.gradient);
      for (float& g : mean) g /= static_cast<float>(result.loss_tokens);
      const std::vector<float> exact = of_parameter(state, bench->loaded.spec, "grad", t.name);
      EXPECT_LT(distance(mean, exact),
                bound(*bench) * norm(exact) + error_multiple * floats(state, "grad_error." + t.name).at(0))
          << t.name << ", recompute " << spec::name(recompute);
    }
  }
}

TEST_P(Golden, TenAdamwStepsAgree) {
  const auto bench = make_bench(machine_, model(), {});
  ten_steps(*bench, golden("adamw.safetensors"), "");
}

TEST_P(Golden, LoraLogitsAndGradientsAgree) {
  const formats::SafetensorsFile expected = golden("lora.safetensors");
  const auto bench = make_bench(machine_, model(), {.lora = true});
  EXPECT_LT(relative_error(logits(machine_, *bench, model(), DType::f32), floats(expected, "logits")), bound(*bench));
  const data::PackedSequence sequence = golden_sequence(model());
  const int64_t sample = 0;
  const train::StepResult result = bench->step->run(1, 0, {&sequence, 1}, {&sample, 1});
  EXPECT_NEAR(result.loss / facts().at("lora_loss").get<double>(), 1, bound(*bench));
  for (const train::TrainedParameter& t : bench->optimizer_state->tensors()) {
    std::vector<float> mean = values(t.gradient);
    for (float& g : mean) g /= static_cast<float>(result.loss_tokens);
    const std::string name = "base_model.model." + t.name;
    const std::vector<float> exact = floats(expected, "grad." + name);
    EXPECT_LT(distance(mean, exact),
              bound(*bench) * norm(exact) + error_multiple * floats(expected, "grad_error." + name).at(0))
        << t.name;
  }
}

TEST_P(Golden, TenLoraStepsAgree) {
  const auto bench = make_bench(machine_, model(), {.lora = true});
  ten_steps(*bench, golden("lora.safetensors"), "base_model.model.");
}

// The error of our bf16 relative to fp32 may be at most 1.5 times that of transformers' bf16.
TEST_P(Golden, Bf16ErrorIsNearTransformers) {
  const formats::SafetensorsFile state = golden("state.safetensors");
  const std::vector<float> exact = floats(state, "logits");
  const auto bench = make_bench(machine_, model(), {.activation = DType::bf16, .lora = false});
  const double ours = relative_error(logits(machine_, *bench, model(), DType::bf16), exact);
  const double theirs = relative_error(floats(state, "logits_bf16"), exact);
  EXPECT_LT(ours, 1.5 * theirs);
  EXPECT_GT(ours, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(golden_subjects()), name_of);

// A step's result does not depend on the micro-batch, recomputation or threads: bit for bit.
TEST(Invariance, ResultsDoNotDependOnMicroBatchRecomputeOrThreads) {
  const auto run = [](int threads, int64_t micro, spec::Recompute recompute, DType type, bool lora) {
    Machine machine(threads);
    const auto bench = make_bench(machine, "llama/a", {type, lora, recompute, micro});
    const std::vector<data::PackedSequence> sequences = different_sequences("llama/a", 5);
    const std::vector<int64_t> samples{0, 1, 2, 3, 4};
    std::vector<double> results;
    for (int64_t step = 1; step <= 3; ++step) {
      const train::StepResult result = bench->step->run(step, 1e-2, sequences, samples);
      results.push_back(result.loss);
      results.push_back(result.grad_norm);
    }
    std::vector<std::vector<float>> weights;
    for (const train::TrainedParameter& t : bench->optimizer_state->tensors())
      weights.push_back(floats(*machine.device, t.master));
    return std::pair(results, weights);
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool lora : {false, true}) {
      const auto expected = run(1, 1, spec::Recompute::none, type, lora);
      for (const spec::Recompute recompute :
           {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
        for (const auto& [threads, micro] : {std::pair{2, int64_t{1}}, {1, 2}, {3, 5}}) {
          EXPECT_TRUE(run(threads, micro, recompute, type, lora) == expected)
              << name(type) << (lora ? " LoRA" : " full") << ", threads " << threads << ", micro " << micro
              << ", recompute " << spec::name(recompute);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ingot::parity
