#include "train/optimizer_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/train/small_run.h"
#include "train/initialise.h"

namespace ingot::train {
namespace {

OptimizerState lora(Device& device, std::vector<std::string> targets, uint64_t seed) {
  return OptimizerState(device, small_spec(), small_lora(std::move(targets)), DType::f32, {}, seed);
}

TEST(OptimizerState, LoraAIsUniformAndBIsZero) {
  CountingDevice device;
  const OptimizerState optimizer_state = lora(device, {"all-linear"}, 1);
  const OptimizerState other = lora(device, {"all-linear"}, 2);
  double highest = 0;
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < optimizer_state.tensors().size(); ++i) {
    const TrainedParameter& t = optimizer_state.tensors()[i];
    const std::vector<float> values = floats(t.master);
    if (t.name.ends_with("lora_B.weight")) {
      for (float value : values) EXPECT_EQ(value, 0.0F) << t.name;
      continue;
    }
    ASSERT_TRUE(t.name.ends_with("lora_A.weight")) << t.name;
    EXPECT_NE(values, floats(other.tensors()[i].master)) << "the seed has no effect";
    const double bound = 1 / std::sqrt(static_cast<double>(t.shape[1]));
    for (float value : values) {
      EXPECT_LE(std::abs(value), bound) << t.name;
      highest = std::max(highest, std::abs(value) / bound);
      sum += value / bound;
      ++count;
    }
  }
  EXPECT_GT(highest, 0.99);  // of over a thousand uniform values
  // Six standard deviations of the mean of uniform values in [-1, 1].
  EXPECT_LT(std::abs(sum / static_cast<double>(count)), 6 / std::sqrt(3.0 * static_cast<double>(count)));
}

TEST(OptimizerState, AllocatesExactlyItsBytes) {
  for (const bool tied : {false, true}) {
    for (const DType activation : {DType::f32, DType::bf16}) {
      for (const DType state : {DType::f32, DType::bf16, DType::u8}) {
        for (const DType master : {DType::f32, DType::bf16}) {
          for (const bool adapter : {false, true}) {
            CountingDevice device;
            const spec::ModelSpec spec = small_spec(tied);
            const WeightSet weights = random_weights(device, spec, activation, 1);
            const size_t before = device.allocated();
            std::optional<spec::LoraSpec> lora;
            if (adapter) lora = small_lora();
            const OptimizerDtypes types{state, master};
            const OptimizerState optimizer_state = lora ? OptimizerState(device, spec, *lora, activation, types, 1)
                                                        : OptimizerState(device, spec, weights, activation, types);
            const OptimizerStateBytes bytes = optimizer_state_bytes(spec, lora, activation, types);
            EXPECT_EQ(device.allocated() - before, bytes.master + bytes.moments + bytes.gradients + bytes.adapter)
                << (tied ? "tied " : "") << name(activation) << " state " << name(state) << " master " << name(master)
                << (adapter ? " LoRA" : " full");
            EXPECT_EQ(optimizer_state.num_parameters(),
                      adapter ? spec::num_parameters(spec::lora_parameters(spec, *lora)) : spec::num_parameters(spec));
          }
        }
      }
    }
  }
}

// The shards of all ranks have their predicted sizes, and together cover every element once.
TEST(OptimizerState, ShardsHaveTheirPredictedBytes) {
  for (const bool fixed : {false, true}) {
    for (const auto& [tied, optimizer, state] : {std::tuple{false, OptimizerName::adamw, DType::f32},
                                                 {true, OptimizerName::adamw, DType::u8},
                                                 {true, OptimizerName::muon, DType::f32},
                                                 {false, OptimizerName::muon, DType::u8},
                                                 {false, OptimizerName::lion, DType::bf16}}) {
      for (const int zero : {1, 2}) {
        CountingDevice device;
        spec::ModelSpec spec = small_spec(tied);
        spec.vocab = 4500;  // the embedding is larger than a block
        const WeightSet weights = random_weights(device, spec, DType::bf16, 1);
        const OptimizerDtypes types{.state = state, .fixed_point_sums = fixed, .optimizer = optimizer};
        std::vector<int64_t> covered(spec::parameters(spec).size());
        for (int rank = 0; rank < 3; ++rank) {
          const ShardSpec share{rank, 3, zero};
          const size_t before = device.allocated();
          const OptimizerState optimizer_state(device, spec, weights, DType::bf16, types, share);
          const OptimizerStateBytes bytes = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types, share);
          EXPECT_EQ(device.allocated() - before, bytes.master + bytes.moments + bytes.gradients);
          for (size_t i = 0; i < covered.size(); ++i) {
            const TrainedParameter& t = optimizer_state.tensors()[i];
            if (t.shard.count() > 0) EXPECT_EQ(t.shard.begin, covered[i]) << t.name;
            if (t.shard.count() > 0) covered[i] = t.shard.end;
            for (const StateTensor& each : t.state) {
              EXPECT_EQ(each.tensor.elements(), (t.shard.count() + each.block - 1) / each.block);
            }
            if (t.optimizer->whole_matrices) EXPECT_TRUE(t.shard.count() == 0 || t.shard.count() == t.shape.elements());
          }
        }
        for (size_t i = 0; i < covered.size(); ++i) {
          EXPECT_EQ(covered[i], spec::parameters(spec)[i].elements());
        }
      }
    }
  }
}

TEST(OptimizerState, StatesMatchTheOptimizer) {
  const auto names = [](OptimizerName optimizer, DType type, const char* parameter) {
    CountingDevice device;
    const spec::ModelSpec spec = small_spec();
    const WeightSet weights = random_weights(device, spec, DType::f32, 1);
    const OptimizerState state(device, spec, weights, DType::f32, {.state = type, .optimizer = optimizer});
    std::vector<std::string> found;
    for (const TrainedParameter& t : state.tensors()) {
      if (t.name != parameter) continue;
      for (const StateTensor& each : t.state) found.push_back(each.name + " " + each.tensor.text());
    }
    return found;
  };
  using Names = std::vector<std::string>;
  const char* matrix = "model.layers.0.mlp.up_proj.weight";  // [24, 16]
  const char* norm = "model.norm.weight";
  EXPECT_EQ(names(OptimizerName::adamw, DType::bf16, matrix),
            (Names{"moment1 bf16[24, 16] on cpu", "moment2 bf16[24, 16] on cpu"}));
  EXPECT_EQ(names(OptimizerName::adamw, DType::u8, matrix),
            (Names{"moment1 u8[24, 16] on cpu", "moment1_scales f32[2] on cpu", "moment2 u8[24, 16] on cpu",
                   "moment2_scales f32[2] on cpu"}));
  EXPECT_EQ(names(OptimizerName::adamw, DType::u8, norm), (Names{"moment1 f32[16] on cpu", "moment2 f32[16] on cpu"}));
  EXPECT_EQ(names(OptimizerName::muon, DType::f32, matrix), Names{"momentum f32[24, 16] on cpu"});
  EXPECT_EQ(names(OptimizerName::muon, DType::f32, norm), (Names{"moment1 f32[16] on cpu", "moment2 f32[16] on cpu"}));
  EXPECT_EQ(names(OptimizerName::muon, DType::f32, "lm_head.weight").size(), 2U);
  EXPECT_EQ(names(OptimizerName::sgd, DType::f32, norm), Names{"momentum f32[16] on cpu"});
  EXPECT_EQ(names(OptimizerName::lion, DType::u8, matrix),
            (Names{"moment1 u8[24, 16] on cpu", "moment1_scales f32[2] on cpu"}));
}

// Optimizers that need whole matrices still get nearly equal shards of a model with many matrices.
TEST(OptimizerState, WholeMatricesAreDistributed) {
  spec::ModelSpec spec = small_spec();
  spec.vocab = 50304;
  spec.hidden = 768;
  spec::LayerSpec layer;
  layer.attention.heads = layer.attention.kv_heads = 12;
  layer.attention.head_dim = 64;
  layer.mlp = spec::Dense{.features = 3072};
  spec.layers = spec::repeated(12, layer);
  const OptimizerDtypes types{.optimizer = OptimizerName::muon};
  const OptimizerStateBytes whole = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types);
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const OptimizerStateBytes one = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types, {rank, ranks, 1});
      EXPECT_NEAR(static_cast<double>(one.moments) / static_cast<double>(whole.moments), 1.0 / ranks, 0.03);
    }
  }
}

// For a model with large enough blocks, shards are nearly equal.
TEST(OptimizerState, ShardsAreNearlyOneNthOfTheWhole) {
  spec::ModelSpec spec = small_spec();
  spec.vocab = 50304;
  spec.hidden = 768;
  spec::LayerSpec layer;
  layer.attention.heads = layer.attention.kv_heads = 12;
  layer.attention.head_dim = 64;
  layer.mlp = spec::Dense{.features = 3072};
  spec.layers = spec::repeated(12, layer);
  const OptimizerDtypes types{.fixed_point_sums = true};
  const OptimizerStateBytes whole = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types);
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const OptimizerStateBytes one = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types, {rank, ranks, 1});
      const OptimizerStateBytes two = optimizer_state_bytes(spec, std::nullopt, DType::bf16, types, {rank, ranks, 2});
      const double share = 1.0 / ranks;
      const auto of = [](size_t part, size_t all) { return static_cast<double>(part) / static_cast<double>(all); };
      EXPECT_NEAR(of(one.moments, whole.moments), share, 0.02);
      EXPECT_NEAR(of(one.master, whole.master), share, 0.02);
      EXPECT_EQ(one.gradients, whole.gradients);
      EXPECT_EQ(two.moments, one.moments);
      EXPECT_LT(of(two.gradients, whole.gradients), share + 0.4);  // plus the largest bucket, which is whole
    }
  }
}

TEST(OptimizerState, LowestLayerIsTheLowestWithAnAdapter) {
  CountingDevice device;
  EXPECT_EQ(lora(device, {"all-linear"}, 1).lowest_trainable_layer(), 0);
  EXPECT_EQ(lora(device, {"layers.1.mlp.down_proj", "layers.2.self_attn.q_proj"}, 1).lowest_trainable_layer(), 1);
  EXPECT_EQ(lora(device, {"layers.2.self_attn.q_proj", "lm_head"}, 1).lowest_trainable_layer(), 2);
  EXPECT_EQ(lora(device, {"lm_head"}, 1).lowest_trainable_layer(), 3);
}

}  // namespace
}  // namespace ingot::train
