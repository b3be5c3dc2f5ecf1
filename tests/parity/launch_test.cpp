// What a GPU is given to do: launches of a training step and of a decoding step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "infer/engine.h"
#include "tensor/tolerance.h"
#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

class Launches : public testing::TestWithParam<int> {
 protected:
  Launches() {
    auto device = std::make_unique<CountingGpu>(GetParam());
    device_ = device.get();
    machine_.device = std::move(device);
  }

  struct Gradients {
    int launches = 0;
    double loss = 0;
    std::vector<std::vector<float>> values;
  };
  // Of a step of `count` sequences, which are all in one micro-batch or one in each.
  Gradients gradients(const std::string& model, int count, bool together, bool bitwise) {
    BenchSettings settings{.micro = together ? count : 1};
    settings.types.fixed_point_sums = bitwise;
    const auto bench = make_bench(machine_, model, settings);
    const std::vector<data::PackedSequence> sequences = different_sequences(model, count);
    std::vector<int64_t> samples(static_cast<size_t>(count));
    Gradients found;
    const int before = device_->launches;
    const train::StepResult result = bench->step->run(1, 0, sequences, samples);
    found.launches = device_->launches - before;
    found.loss = result.loss;
    for (const train::TrainedParameter& t : bench->optimizer_state->tensors())
      found.values.push_back(floats(*machine_.device, t.gradient));
    return found;
  }

  CountingGpu* device_ = nullptr;
  Machine machine_{1, "sim32"};
};

// With sums in fp32 the gradient of a micro-batch is summed inside the gemms, whatever its number of sequences.
TEST_P(Launches, AMicroBatchHasOneGradient) {
  for (const char* model : {"llama/a", "mixtral/a"}) {
    const Gradients one = gradients(model, 1, true, false), together = gradients(model, 3, true, false);
    EXPECT_EQ(together.launches, one.launches) << model;
    EXPECT_GT(gradients(model, 3, true, true).launches, gradients(model, 1, true, true).launches) << model;

    const Gradients apart = gradients(model, 3, false, false);
    const double bound = tolerance(DType::f32, chain_length(make_bench(machine_, model, {})->loaded.spec, 96));
    EXPECT_NEAR(together.loss / apart.loss, 1, bound);
    ASSERT_EQ(together.values.size(), apart.values.size());
    for (size_t i = 0; i < apart.values.size(); ++i)
      EXPECT_LE(relative_error(together.values[i], apart.values[i]), bound) << model << ", tensor " << i;
  }
}

// A step that decodes one sequence: its kernels are known, and its results come in one copy. The model's work is queued
// before the host waits for the token of the step before, which is on the device alone until then.
TEST_P(Launches, ADecodingStepHasFewPerLayer) {
  const Served served = serve(machine_, "llama/a", DType::bf16);
  infer::EngineSettings settings;
  settings.context = 24;
  settings.page_tokens = 4;
  device_->replaying = false;
  infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *served.model, settings);
  infer::Request request;
  request.prompt = std::vector<int32_t>{3, 1, 4, 1, 5};
  request.max_tokens = 4;
  engine.submit(std::move(request));
  engine.step();  // the prompt

  std::vector<std::string> kernels;
  device_->kernels = &kernels;
  device_->copies_to_host = device_->waiting_copies = 0;
  engine.step();
  device_->kernels = nullptr;
  EXPECT_EQ(device_->copies_to_host, 1);
  EXPECT_EQ(device_->waiting_copies, 0);

  const std::vector<std::string> of_layer{"rms_norm_bf16_packed",       // before attention
                                          "skinny_group_bf16_bf16",     // q, k and v
                                          "rope_kv_store_bf16_packed",  //
                                          "paged_unit_64",              // attention, a block for each 128 positions
                                          "skinny_gemm_bf16_bf16",      // o, added to the residual
                                          "rms_norm_bf16_packed",       // before the MLP
                                          "skinny_glu_bf16_bf16",       // gate, up and activation
                                          "skinny_gemm_bf16_bf16"};     // down, added to the residual
  std::vector<std::string> expected{"insert_sampled", "embedding_bf16_packed"};
  for (int64_t layer = 0; layer < served.loaded.spec.num_layers(); ++layer)
    expected.insert(expected.end(), of_layer.begin(), of_layer.end());
  expected.insert(expected.end(), {"rms_norm_bf16_packed", "skinny_gemm_bf16_bf16",  // norm, head
                                   "host waits", "sample"});
  EXPECT_EQ(kernels, expected);
}

// Prompts of more tokens than the kernels for few tokens take: q, k and v of a layer are one gemm, and so are gate and
// up, with biases too, and also where their weights are not one matrix in the files.
TEST_P(Launches, LayersWithOneInputAreOneGemmForAPrompt) {
  for (const char* model : {"llama/a", "qwen2/a", "gpt2/a"}) {
    const Served served = serve(machine_, model, DType::bf16);
    infer::EngineSettings settings;
    settings.context = 24;
    settings.page_tokens = 4;
    infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *served.model, settings);
    infer::Request request;
    std::vector<int32_t> prompt(20);
    std::iota(prompt.begin(), prompt.end(), 1);
    request.prompt = std::move(prompt);
    request.max_tokens = 1;
    engine.submit(std::move(request));
    std::vector<std::string> kernels;
    device_->kernels = &kernels;
    engine.step();
    device_->kernels = nullptr;
    int64_t divided = 0, gemms = 0;
    for (const std::string& kernel : kernels) {
      divided += kernel.starts_with("columns_") ? 1 : 0;
      gemms += kernel.starts_with("gemm_") ? 1 : 0;
    }
    EXPECT_EQ(divided, served.loaded.spec.num_layers()) << model;
    EXPECT_EQ(gemms, served.loaded.spec.num_layers() * 4) << model;  // q, k and v; o; gate and up; down
  }
}

// Vocabularies of no multiple of 8 tokens (43 here) have padded logits where a library may compute them: for more rows
// than the kernels for few rows take.
TEST_P(Launches, LogitsOfManySequencesArePadded) {
  for (const int32_t sequences : {4, 20}) {
    const Served served = serve(machine_, "llama/a", DType::bf16);
    infer::EngineSettings settings;
    settings.context = 8;
    settings.page_tokens = 4;
    settings.sequences = sequences;
    infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *served.model, settings);
    for (int32_t i = 0; i < sequences; ++i) {
      infer::Request request;
      request.prompt = std::vector<int32_t>{i + 1, 2};
      request.max_tokens = 1;  // the next step would be queued in the same call
      request.sampling.top_logprobs = 20;
      engine.submit(std::move(request));
    }
    std::vector<std::string> kernels;
    device_->kernels = &kernels;
    const std::vector<infer::Output> outputs = engine.step();
    device_->kernels = nullptr;
    EXPECT_EQ(std::ranges::count(kernels, "pad_columns_f32"), sequences > 16 ? 1 : 0);
    EXPECT_EQ(std::ssize(outputs), sequences);
    for (const infer::Output& output : outputs) {
      ASSERT_TRUE(output.token);
      double share = 0;
      for (const auto& [id, logprob] : output.token->top) {
        EXPECT_LT(id, served.loaded.spec.vocab);
        share += std::exp(static_cast<double>(logprob));
      }
      EXPECT_GT(share, 0.4);
      EXPECT_LE(share, 1 + tolerance(DType::f32, served.loaded.spec.vocab));
    }
  }
}

// Launches of several ops have the bits of one for each op.
TEST_P(Launches, OpsInOneLaunchHaveTheBitsOfTheirOwn) {
  for (const char* model : {"llama/a", "qwen3/a", "gemma2/a"}) {
    const auto decode = [&](Machine& machine) {
      const Served served = serve(machine, model, DType::bf16);
      infer::EngineSettings settings;
      settings.context = 24;
      settings.page_tokens = 4;
      infer::Engine engine(*machine.device, machine.registry, machine.threads, *served.model, settings);
      infer::Request request;
      request.prompt = std::vector<int32_t>{3, 1, 4, 1, 5};
      request.max_tokens = 4;
      engine.submit(std::move(request));
      std::vector<std::pair<int32_t, float>> tokens;
      while (!engine.idle()) {
        for (const infer::Output& output : engine.step()) {
          if (output.token) tokens.emplace_back(output.token->id, output.token->logprob);
        }
      }
      return tokens;
    };
    Machine apart(1, "sim" + std::to_string(GetParam()));
    for (const char* op : {"linear_group", "linear_glu", "rope_kv_store"})
      apart.registry.select_implementation(op, "apart");
    const auto expected = decode(apart);
    EXPECT_EQ(expected.size(), 4U);
    EXPECT_EQ(decode(machine_), expected) << model;
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, Launches, testing::Values(32, 64),
                         [](const auto& width) { return "sim" + std::to_string(width.param); });

}  // namespace
}  // namespace ingot::parity
