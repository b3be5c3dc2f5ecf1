// A step with a non-finite gradient is repeated, and the op and layer are named.
#include "train/non_finite_locator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/grouped_linear.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

Parameter& parameter(SmallRun& run, const std::string& name) {
  const std::vector<spec::ParamSpec> table = spec::parameters(run.spec);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return run.weights.parameters[i];
  }
  throw std::out_of_range(name);
}

void set(const Parameter& p, int64_t at, float value) {
  const Tensor tensor = p.matrix ? p.matrix.tensor() : p.vector;
  if (tensor.dtype == DType::f32) {
    tensor.as<float>()[at] = value;
  } else {
    tensor.as<uint16_t>()[at] = std::isnan(value) ? 0x7FC0 : 0x7F80;
  }
}

std::string fault(SmallRun& run, const std::vector<data::PackedSequence>& batch) {
  return run.step->locate_non_finite(1, batch, SmallRun::samples(static_cast<int64_t>(batch.size())), run.weights);
}

TEST(NonFiniteLocator, FindsNothingInAFiniteStep) {
  for (const DType type : {DType::f32, DType::bf16}) {
    SmallRun run({.lora = small_lora(), .weights = type, .step = {.activation = type, .sequence_length = 24}});
    EXPECT_EQ(fault(run, run.sequences(3)), "");
  }
}

// In full training and LoRA, in each dtype, with and without recomputation.
TEST(NonFiniteLocator, NamesAWeightOfAMiddleLayer) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool adapter : {false, true}) {
      for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::full}) {
        for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
          SmallRun::Settings settings;
          if (adapter) settings.lora = small_lora();
          settings.weights = type;
          settings.step = {.activation = type, .recompute = recompute, .sequence_length = 24, .micro = 2};
          SmallRun run(settings);
          set(parameter(run, name), 5, value);
          const std::vector<data::PackedSequence> batch = run.sequences(3);
          EXPECT_TRUE(run.run(1, 1e-3, batch).skipped);
          // With an adapter the op may include the adapter's gemm.
          const std::string found = fault(run, batch), behind = " with " + name + ", whose values are not finite";
          EXPECT_TRUE(found == "linear" + behind || (adapter && found == "linear_low_rank" + behind)) << found;
          EXPECT_EQ(run.optimizer_state->updates(), 0);
        }
      }
    }
  }
}

// The experts' weights are among the tensors of a grouped gemm. Without kernels, as the CPU's calls other gemms, which
// would be named.
TEST(NonFiniteLocator, NamesAWeightOfAnExpert) {
  SmallRun::Settings settings;
  settings.spec.family = "mixtral";
  for (spec::LayerSpec& layer : settings.spec.layers) layer.mlp = spec::Experts{4, 2, spec::dense_of(layer.mlp)};
  SmallRun run(settings);
  const auto name = [](int expert) {
    return "model.layers.1.block_sparse_moe.experts." + std::to_string(expert) + ".w3.weight";
  };
  std::vector<Weight> weights;
  for (int e = 0; e < 4; ++e) weights.push_back(parameter(run, name(e)).matrix);
  set(parameter(run, name(2)), 5, INFINITY);

  std::vector<float> x(static_cast<size_t>(3 * weights[0].in)), y(static_cast<size_t>(3 * weights[0].out), NAN);
  std::vector<int32_t> offsets{0, 1, 1, 3, 3};
  const auto tensor = [&](auto& values, DType dtype, const Shape& shape) {
    return Tensor{values.data(), dtype, shape, &run.device};
  };
  const ops::Registry idle = run.registry.without_kernels();
  NonFiniteLocator locator(run.device, run.spec, run.weights, *run.optimizer_state);
  ops::Context context{run.device, idle, run.step->context().scratch, &run.threads, &locator};
  ops::grouped_linear(context, tensor(y, DType::f32, {3, weights[0].out}), tensor(x, DType::f32, {3, weights[0].in}),
                      weights, tensor(offsets, DType::i32, {5}), {});
  EXPECT_EQ(locator.found(), "grouped_linear with " + name(2) + ", whose values are not finite");
}

// One of an op's two parameters is not finite.
TEST(NonFiniteLocator, NamesTheParameterThatIsNotFinite) {
  SmallRun::Settings settings;
  settings.lora = small_lora();
  SmallRun run(settings);
  const auto& tensors = run.optimizer_state->tensors();
  const auto adapter = std::find_if(tensors.begin(), tensors.end(), [](const TrainedParameter& t) {
    return t.name == "model.layers.1.mlp.up_proj.lora_B.weight";
  });
  ASSERT_NE(adapter, tensors.end());
  const Parameter& layer = parameter(run, "model.layers.1.mlp.up_proj.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float broken = nan;
  const Tensor y{&broken, DType::f32, Shape{1}, &run.device};
  const auto found = [&] {
    NonFiniteLocator locator(run.device, run.spec, run.weights, *run.optimizer_state);
    locator.ran("linear_low_rank", std::vector<Tensor>{y, layer.matrix.tensor(), adapter->weight}, {});
    return locator.found();
  };
  const std::string up = "linear_low_rank with model.layers.1.mlp.up_proj.";
  EXPECT_EQ(found(), up + "weight");
  adapter->weight.as<float>()[3] = nan;
  EXPECT_EQ(found(), up + "lora_B.weight, whose values are not finite");
  adapter->weight.as<float>()[3] = 0;
  set(layer, 5, nan);
  EXPECT_EQ(found(), up + "weight, whose values are not finite");
}

// Finite weights overflow in a product: the parameter is named as the place, not as the cause.
TEST(NonFiniteLocator, NamesThePlaceOfAnOverflow) {
  SmallRun run({});
  for (const char* name : {"model.layers.2.post_attention_layernorm.weight", "model.layers.2.mlp.gate_proj.weight"}) {
    const Parameter& p = parameter(run, name);
    const int64_t n = p.matrix ? p.matrix.out * p.matrix.in : p.vector.elements();
    for (int64_t i = 0; i < n; ++i) set(p, i, 1e37F);
  }
  const std::vector<data::PackedSequence> batch = run.sequences(1);
  EXPECT_TRUE(run.run(1, 1e-3, batch).skipped);
  EXPECT_EQ(fault(run, batch), "linear with model.layers.2.mlp.gate_proj.weight");
}

// The forward pass is finite and the head's gradient is not (see Step.AnOverflowingGradientUnderAFiniteLoss...).
TEST(NonFiniteLocator, SaysThatAGradientIsNotFinite) {
  SmallRun run({});
  for (int64_t i = 0; i < run.spec.hidden; ++i) set(parameter(run, "model.norm.weight"), i, 3e37F);
  const Weight& head = parameter(run, "lm_head.weight").matrix;
  for (int64_t i = 0; i < head.out * head.in; ++i) head.tensor().as<float>()[i] *= 1e-37F;
  std::vector<data::PackedSequence> batch = run.sequences(4);
  for (data::PackedSequence& sequence : batch) {
    sequence.ids.assign(sequence.ids.size(), 7);
    for (int32_t& target : sequence.targets) target = target < 0 ? -1 : 3;
  }
  EXPECT_TRUE(run.run(1, 1e-3, batch).skipped);
  EXPECT_EQ(fault(run, batch), "matmul with the gradient of lm_head.weight");
}

// Ops without a parameter are located by the previous op.
TEST(NonFiniteLocator, LocatesOpsWithoutParametersByThePreviousOne) {
  SmallRun run({});
  const std::string value = "model.layers.1.mlp.up_proj.weight";
  for (const std::string& name : {value, std::string("model.layers.1.mlp.gate_proj.weight")}) {
    const Parameter& p = parameter(run, name);
    for (int64_t i = 0; i < p.matrix.out * p.matrix.in; ++i) set(p, i, i % 2 == 0 ? 1e20F : -1e19F);
  }
  const std::vector<data::PackedSequence> batch = run.sequences(1);
  EXPECT_TRUE(run.run(1, 1e-3, batch).skipped);
  EXPECT_EQ(fault(run, batch), "glu after " + value);
}

// Embedding rows that no token uses are not checked: this table has an unused bad row.
TEST(NonFiniteLocator, IgnoresUnusedEmbeddingRows) {
  SmallRun run({});
  std::vector<data::PackedSequence> batch = run.sequences(1);
  for (data::PackedSequence& sequence : batch) {
    for (int32_t& id : sequence.ids) id = id == 39 ? 0 : id;
    for (int32_t& target : sequence.targets) target = target == 39 ? 0 : target;
  }
  set(parameter(run, "model.embed_tokens.weight"), 39 * run.spec.hidden, INFINITY);
  EXPECT_EQ(fault(run, batch), "");
}

}  // namespace
}  // namespace ingot::train
