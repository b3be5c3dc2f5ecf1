// Differences between families, with values that can be checked by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "spec/flops.h"
#include "spec/sizes.h"
#include "tests/spec/small_model.h"

namespace ingot::spec {
namespace {

ModelSpec small() { return small_model("mistral", 4); }

TEST(AlibiSlopes, ArePublishedValues) {  // Press et al. 2022 (arXiv 2108.12409); for 6 heads as MPT does
  Attention a;
  a.heads = 4;
  EXPECT_EQ(alibi_slopes(a), (std::vector<float>{0.25F, 0.0625F, 0.015625F, 0.00390625F}));
  a.heads = 6;
  EXPECT_EQ(alibi_slopes(a), (std::vector<float>{0.25F, 0.0625F, 0.015625F, 0.00390625F, 0.5F, 0.125F}));
  a.heads = 2;
  a.alibi_bias_max = 4;
  EXPECT_EQ(alibi_slopes(a), (std::vector<float>{0.25F, 0.0625F}));
}

TEST(Check, RejectsConflictingSettings) {
  ModelSpec m = small();
  EXPECT_NO_THROW(check(m));
  LayerSpec& last = m.layers.back();  // the other layers are unchanged
  last.attention.clip_qkv = 6;
  EXPECT_THROW(check(m), Error);
  last.attention.fused_qkv = true;
  EXPECT_NO_THROW(check(m));
  last.post_norms = true;
  EXPECT_NO_THROW(check(m));
  last.parallel_residual = true;
  EXPECT_THROW(check(m), Error);
}

// Each pair of query and key costs two products of 2 D FLOPs in each of 4 heads.
TEST(Flops, AWindowLimitsTheKeysOfAToken) {
  ModelSpec m = small();
  const auto pairs = [&](AttentionCount count) {
    const double linear = 2.0 * static_cast<double>(matmul_parameters(m)) * 1000;
    return (forward_flops(m, {1000, 1e6}, count) - linear) / (4.0 * 4 * 8);
  };
  EXPECT_EQ(pairs(AttentionCount::causal), 4 * 500'000);
  set_window(m, 100);
  EXPECT_EQ(pairs(AttentionCount::causal), 4 * 100'000);
  EXPECT_EQ(pairs(AttentionCount::full_square), 4 * 1'000'000);
  m.layers[1].attention.window = m.layers[3].attention.window = 0;
  EXPECT_EQ(pairs(AttentionCount::causal), 2 * 100'000 + 2 * 500'000);
  set_window(m, 900);  // more than half of the full square
  EXPECT_EQ(pairs(AttentionCount::causal), 4 * 500'000);
}

TEST(Flops, OnlyChosenExpertsCount) {
  ModelSpec m = small();
  m.family = "mixtral";
  set_experts(m, 8, 2);
  const int64_t attention = 32 * (32 + 16 + 16) + 32 * 32;
  EXPECT_EQ(matmul_parameters(m), 4 * (attention + 8 * 32 + 2 * 3 * 48 * 32) + 100 * 32);

  const LoraSpec lora{.rank = 2, .targets = {"w1"}};
  const std::vector<LoraParam> adapters = lora_parameters(m, lora);
  ASSERT_EQ(adapters.size(), 32U);
  const double with = lora_training_flops(m, adapters, {1, 1}, AttentionCount::causal);
  const double frozen = 4.0 * static_cast<double>(matmul_parameters(m)) + 3 * 4.0 * 4 * 8 * 4 / 2;
  EXPECT_EQ(with - frozen, 6.0 * 4 * 2 * 2 * (32 + 48));  // A and B of 2 experts in each of 4 blocks
}

// The bytes that a block of each kind saves per token, in fp32.
TEST(Sizes, BlocksSaveWhatTheirKindNeeds) {
  const auto bytes = [](const ModelSpec& m, Recompute recompute) {
    int64_t total = 0;
    for (const SavedTensor& t : block_tensors(m, m.layers.front(), 4)) {
      if (is_saved(t, recompute)) total += t.features * t.bytes;
    }
    return total;
  };
  ModelSpec m = small();
  const int64_t llama = 4 * (3 * 32 + 2 + 2 * 32 + 2 * 16 + 4 + 3 * 48);
  EXPECT_EQ(bytes(m, Recompute::none), llama);
  EXPECT_EQ(bytes(m, Recompute::selective), llama - 4 * (2 * 32 + 48));
  EXPECT_EQ(bytes(m, Recompute::full), 0);
  m.layers.front().post_norms = true;  // two more results with their statistics
  EXPECT_EQ(bytes(m, Recompute::none), llama + 4 * 2 * (32 + 1));
  m = small();
  m.layers.front().attention.qk_norm = QkNorm::head;  // q and k before their norms, and one statistic per head
  EXPECT_EQ(bytes(m, Recompute::none), llama + 4 * (32 + 16 + 4 + 2));
  m = small();
  set_experts(m, 8, 2);  // the router's logits, four values per choice, input and output rows of two experts
  EXPECT_EQ(bytes(m, Recompute::none), llama + 4 * (8 + 4 * 2 + 2 * 2 * 32 + 3 * 48));
  m = small();
  m.norm = NormKind::layer;
  m.layers.front().parallel_residual = true;
  dense_of(m.layers.front().mlp).gated = false;
  EXPECT_EQ(bytes(m, Recompute::none), llama + 4 * (2 - 32 - 48));
}

// A model whose second layer is a mixture of experts with fewer key/value heads.
ModelSpec mixed() {
  ModelSpec m = small_model("mixtral", 3);
  m.layers[1].mlp = Experts{8, 2, dense_of(m.layers[1].mlp)};
  m.layers[1].attention.kv_heads = 1;
  return m;
}

TEST(Sizes, MixedModelsSumTheirLayers) {
  const ModelSpec m = mixed();
  const auto of_layer = [&](size_t layer, Recompute recompute) {  // tensors of 64 tokens need no alignment
    std::pair<size_t, size_t> bytes;
    for (const SavedTensor& t : block_tensors(m, m.layers[layer], 4)) {
      (is_saved(t, recompute) ? bytes.first : bytes.second) += static_cast<size_t>(64 * t.features * t.bytes);
    }
    return bytes;
  };
  const size_t residual = 64 * 32 * 4;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto [kept, recomputed] = of_layer(0, recompute);
    const auto [kept_by_experts, recomputed_of_experts] = of_layer(1, recompute);
    EXPECT_GE(recomputed_of_experts, recomputed);
    // The residual before every layer and after the last one, the gradient of the latter, and the final norm's output
    // and statistics.
    const SavedBytes all = saved_bytes(m, recompute, 4, 64, 3), last = saved_bytes(m, recompute, 4, 64, 1);
    EXPECT_EQ(all.own, 2 * kept + kept_by_experts + 6 * residual + 64 * 4);
    EXPECT_EQ(all.shared, recomputed_of_experts);
    EXPECT_EQ(last.own, kept + 4 * residual + 64 * 4) << "the last layer only";
    EXPECT_EQ(last.shared, recomputed);
    // An earlier stage sends the last residual and receives its gradient.
    const SavedBytes first = saved_bytes(m, recompute, 4, 64, 3, {.pp = 2});
    EXPECT_EQ(first.own, 2 * kept + kept_by_experts + 3 * residual);
    EXPECT_EQ(first.shared, recomputed_of_experts + 2 * residual);
  }
  EXPECT_EQ(cache_elements(m), 2 * (16 + 8 + 16));
  EXPECT_EQ(kv_bytes(m, 5, 8, 4), static_cast<size_t>(5 * 8 * 4 * cache_elements(m)));
}

TEST(Parameters, MayDifferBetweenLayers) {
  const ModelSpec m = mixed();
  EXPECT_NO_THROW(check(m));
  int64_t experts = 0;
  for (const ParamSpec& p : parameters(m)) {
    EXPECT_EQ(p.expert >= 0, p.layer == 1 && p.name.find(".experts.") != std::string::npos) << p.name;
    EXPECT_EQ(p.used, p.expert >= 0 ? 0.25 : 1) << p.name;
    if (p.role == Role::k && !p.bias) EXPECT_EQ(p.shape[0], p.layer == 1 ? 8 : 16);
    experts += p.expert >= 0;
  }
  EXPECT_EQ(experts, 8 * 3);
  const std::vector<std::string> targets = lora_targets(m);  // also targets that the first layer lacks
  for (const char* name : {"gate_proj", "w1", "gate"}) {
    EXPECT_NE(std::find(targets.begin(), targets.end(), name), targets.end()) << name;
  }
  EXPECT_EQ(targets.back(), "lm_head");
}

TEST(Parameters, OfLayersThatTheFamilyLacksAreRefused) {
  ModelSpec m = small();
  set_experts(m, 8, 2);  // mistral
  try {
    parameters(m);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(error.message().find("mistral"), std::string::npos);
  }
}

TEST(Parameters, OfMoreExpertsThanAGridHasRowsAreRefused) {
  ModelSpec m = small();
  m.family = "mixtral";
  m.layers = repeated(1, m.layers.front());
  set_experts(m, 65535, 2);
  EXPECT_NO_THROW(check(m));
  set_experts(m, 65536, 2);
  try {
    check(m);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_NE(error.message().find("2 of 65536 experts"), std::string::npos) << error.message();
  }
}

TEST(Layers, MayBeRepeatedWithinBounds) {
  EXPECT_EQ(repeated(3, {}).size(), 3U);
  for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{65537}, int64_t{1} << 40}) {
    EXPECT_THROW(repeated(count, {}), Error) << count;
  }
}

}  // namespace
}  // namespace ingot::spec
