// FLOPs per token, checked against values computed by hand from the published shapes: 2 FLOPs per matmul parameter
// forward and 4 backward (2 for frozen weights), and 4 heads head_dim keys per layer for attention (Chowdhery et al.
// 2022, PaLM, appendix B; halved when causal).
#include "spec/flops.h"

#include <gtest/gtest.h>

namespace ingot::spec {
namespace {

LayerSpec layer_of(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ffn) {
  LayerSpec layer;
  layer.attention.heads = heads;
  layer.attention.kv_heads = kv_heads;
  layer.attention.head_dim = head_dim;
  layer.mlp = Dense{.features = ffn};
  return layer;
}

ModelSpec llama_8b() {
  ModelSpec m;
  m.family = "llama";
  m.vocab = 128256;
  m.hidden = 4096;
  m.layers = repeated(32, layer_of(32, 8, 128, 14336));
  m.context = 131072;
  return m;
}

ModelSpec llama_70b() {
  ModelSpec m = llama_8b();
  m.vocab = 32000;
  m.hidden = 8192;
  m.layers = repeated(80, layer_of(64, 8, 128, 28672));
  m.context = 4096;
  return m;
}

ModelSpec smollm_135m() {
  ModelSpec m = llama_8b();
  m.vocab = 49152;
  m.hidden = 576;
  m.layers = repeated(30, layer_of(9, 3, 64, 1536));
  m.tied_head = true;
  return m;
}

double giga_per_token(double flops, double tokens) { return flops / tokens / 1e9; }
AttentionSquares one(double length) { return {length, length * length}; }

LoraSpec all_linear(int64_t rank) {
  LoraSpec lora;
  lora.rank = rank;
  lora.targets = {"all-linear"};
  return lora;
}

TEST(Flops, MatmulParametersAreThoseOfThePublishedShapes) {
  EXPECT_NEAR(static_cast<double>(matmul_parameters(llama_8b())), 7.505e9, 0.0005e9);
  EXPECT_NEAR(static_cast<double>(matmul_parameters(llama_70b())), 68.7e9, 0.05e9);
}

TEST(Flops, FullTrainingHasThePublishedFlops) {
  EXPECT_NEAR(giga_per_token(training_flops(llama_8b(), one(2048), AttentionCount::causal), 2048), 46.6, 0.05);
  EXPECT_NEAR(giga_per_token(training_flops(llama_8b(), one(2048), AttentionCount::full_square), 2048), 48.3,
              0.06);  // 48.249
  EXPECT_NEAR(giga_per_token(training_flops(llama_8b(), one(8192), AttentionCount::causal), 8192), 51.5, 0.05);
  EXPECT_NEAR(giga_per_token(training_flops(llama_8b(), one(8192), AttentionCount::full_square), 8192), 57.9, 0.05);
  EXPECT_NEAR(giga_per_token(training_flops(smollm_135m(), one(1024), AttentionCount::causal), 1024), 0.913, 0.0005);
}

// The values are those of the frozen layers and attention. A rank-1 adapter adds less than 0.05 GFLOP.
TEST(Flops, LoraSkipsWeightGradients) {
  const auto lora = [](const ModelSpec& model, double length) {
    const std::vector<LoraParam> adapters = lora_parameters(model, all_linear(1));
    const double adapter = 6.0 * static_cast<double>(num_parameters(adapters)) / 1e9;
    return giga_per_token(lora_training_flops(model, adapters, one(length), AttentionCount::causal), length) - adapter;
  };
  EXPECT_NEAR(lora(llama_8b(), 2048), 31.6, 0.05);
  EXPECT_NEAR(lora(llama_8b(), 8192), 36.5, 0.05);
  EXPECT_NEAR(lora(llama_70b(), 8192), 307, 0.5);
}

// Layers below the lowest adapted one have no backward pass.
TEST(Flops, LoraOnTheLastLayerHasOneBackward) {
  const ModelSpec model = smollm_135m();
  LoraSpec lora = all_linear(4);
  lora.targets = {"model.layers.29.self_attn.q_proj"};
  const std::vector<LoraParam> adapters = lora_parameters(model, lora);
  ASSERT_EQ(adapters.size(), 1u);
  ModelSpec last = model;
  last.layers.resize(1);
  const double forward = forward_flops(model, one(512), AttentionCount::causal);
  const double head = 2.0 * 49152 * 576 * 512;
  const double block = forward_flops(last, one(512), AttentionCount::causal) - head;
  const double attention = block - 2.0 * static_cast<double>(matmul_parameters(last) - 49152 * 576) * 512;
  const double expected = forward + head + block + attention + 6.0 * 4 * (576 + 576) * 512;
  EXPECT_NEAR(lora_training_flops(model, adapters, one(512), AttentionCount::causal) / expected, 1.0, 1e-12);
}

TEST(Flops, PackedSequencesCountEachSequencesSquare) {
  const ModelSpec model = smollm_135m();
  const AttentionSquares packed{1024, 2 * 512.0 * 512.0};
  EXPECT_EQ(forward_flops(model, packed, AttentionCount::causal),
            2 * forward_flops(model, one(512), AttentionCount::causal));
}

}  // namespace
}  // namespace ingot::spec
