// The scratch memory that an engine plans is enough for what a GPU's ops take in a step, at a model's real sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/ops.h"
#include "base/thread_pool.h"
#include "bench/random_model.h"
#include "infer/engine.h"
#include "ops/registry.h"
#include "tests/bench/dry_gpu.h"
#include "tests/locations.h"

namespace ingot::bench {
namespace {

constexpr GpuModel h200{DeviceKind::cuda, "H200", "sm_90", size_t{1} << 37};
constexpr GpuModel mi300x{DeviceKind::hip, "MI300X", "gfx942", size_t{1} << 37};
constexpr int64_t batch_tokens = 512;

struct Subject {
  const char* name;
  GpuModel gpu;
  bool adapter;  // of every linear layer
  bool biases;   // of the MLP's layers
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

class EngineScratch : public testing::TestWithParam<Subject> {
 protected:
  // One layer of Llama 3.1 8B, whose gate and up for a full batch are larger than any other result.
  static spec::ModelSpec one_layer() {
    spec::ModelSpec model = bench_spec(std::string(source_root) + "/recipes/models/llama-3.1-8b");
    model.layers.resize(1);
    model.vocab = 512;
    spec::dense_of(model.layers.front().mlp).bias = GetParam().biases;
    return model;
  }
};

// Weights one after the other in memory are one gemm, whose result is in scratch memory until it is divided.
TEST_P(EngineScratch, HoldsJoinedGateAndUp) {
  DryGpu gpu(GetParam().gpu);
  ops::Registry registry;
  gpu::register_ops(registry, gpu.kind());
  ThreadPool threads(1);
  const spec::ModelSpec model = one_layer();
  const WeightSet weights = random_model(gpu, model, random_weight_storage("auto", DType::bf16), 1, 0);
  const std::unique_ptr<models::Model> computed = models::make_model(model, weights, gpu);
  const spec::LoraSpec lora{.rank = 16, .alpha = 16, .targets = {"all-linear"}};
  infer::EngineSettings settings;
  settings.batch_tokens = batch_tokens;
  settings.context = batch_tokens + 1;
  settings.adapter_rank = GetParam().adapter ? lora.rank : 0;
  infer::Engine engine(gpu, registry, threads, *computed, settings);
  infer::Request request;
  request.prompt = random_sequence(model, batch_tokens, batch_tokens, 0).ids;
  request.max_tokens = 1;
  if (GetParam().adapter) request.adapter = random_adapter(model, lora, DType::bf16, 0);
  engine.submit(std::move(request));
  std::vector<infer::Output> outputs;
  ASSERT_NO_THROW(outputs = engine.step());
  EXPECT_EQ(outputs.size(), 1U);
  const int64_t both = 2 * spec::dense_of(model.layers.front().mlp).features;
  EXPECT_TRUE(std::ranges::any_of(gpu.launches(), [&](const Launch& launch) {
    return launch.is_gemm && launch.shape == fmt::format("{}x{}x{}", batch_tokens, both, model.hidden);
  }));
}

INSTANTIATE_TEST_SUITE_P(Models, EngineScratch,
                         testing::Values(Subject{"sm_90_adapter", h200, true, false},
                                         Subject{"sm_90_biases", h200, false, true},
                                         Subject{"gfx942_adapter", mi300x, true, false},
                                         Subject{"gfx942_biases", mi300x, false, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::bench
