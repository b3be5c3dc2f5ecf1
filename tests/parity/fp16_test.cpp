// Inference in fp16: every family's logits compared with fp32, and equal greedy tokens on the CPU and on simulated
// GPUs.
#include <gtest/gtest.h>

#include <algorithm>

#include "infer/engine.h"
#include "tensor/tolerance.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

class Fp16 : public testing::TestWithParam<Subject> {};

// fp16 may differ from fp32 by an eighth of what bf16 may (golden_test.cpp), as its unit in the last place is.
TEST_P(Fp16, ErrorIsThatOfItsRounding) {
  const auto& [model, device] = GetParam();
  const formats::SafetensorsFile state(golden_folder(model) / "state.safetensors");
  const std::vector<float> exact = floats(state, "logits");
  Machine machine(2, device);
  const Served served = serve(machine, model, DType::f16);
  const double found = relative_error(logits(machine, served, model, DType::f16), exact);
  const double unit = unit_roundoff(DType::f16) / unit_roundoff(DType::bf16);
  EXPECT_LT(found, 1.5 * unit * relative_error(floats(state, "logits_bf16"), exact));
  EXPECT_GT(found, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Fp16, testing::ValuesIn(golden_subjects()), name_of);

// Ten greedily decoded tokens with an fp16 cache.
std::vector<int32_t> greedy(const std::string& model, const std::string& device, StorageType weights) {
  Machine machine(2, device);
  const Served served = serve(machine, model, weights == StorageType::f16 ? DType::f16 : DType::bf16);
  infer::EngineSettings settings;
  settings.activation = DType::f16;
  settings.context = 24;
  settings.page_tokens = 4;
  settings.decoded = weights != StorageType::f16;
  infer::Engine engine(*machine.device, machine.registry, machine.threads, *served.model, settings);
  infer::Request request;
  request.prompt = std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2, 6};
  request.max_tokens = 10;
  engine.submit(std::move(request));
  std::vector<int32_t> ids;
  while (!engine.idle()) {
    for (const infer::Output& output : engine.step()) {
      if (output.token) ids.push_back(output.token->id);
    }
  }
  return ids;
}

TEST(Fp16Decoding, GivesTheSameTokensOnEveryDevice) {
  for (const char* model : {"llama/a", "gpt2/a"}) {
    for (const StorageType weights : {StorageType::f16, StorageType::bf16}) {
      const std::vector<int32_t> expected = greedy(model, "cpu", weights);
      EXPECT_EQ(expected.size(), 10U);
      EXPECT_EQ(greedy(model, "sim32", weights), expected) << model << " " << name(weights);
      EXPECT_EQ(greedy(model, "sim64", weights), expected) << model << " " << name(weights);
    }
  }
}

}  // namespace
}  // namespace ingot::parity
