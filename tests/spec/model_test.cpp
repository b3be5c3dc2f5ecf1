#include "spec/model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "spec/lora.h"
#include "spec/sizes.h"
#include "tests/spec/small_model.h"

namespace ingot::spec {
namespace {

ModelSpec small_llama() { return small_model("llama", 2); }

TEST(RopeFrequencies, ScaleLikeLlama31) {  // values of transformers' _compute_llama3_parameters
  Rope rope{.theta = 5e5};
  const std::vector<float> plain = rope_frequencies(rope, 128);
  rope.scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 8192};
  const std::vector<float> scaled = rope_frequencies(rope, 128);
  EXPECT_FLOAT_EQ(plain[29], 0.0026160992529F);
  EXPECT_FLOAT_EQ(scaled[29], 0.0021665707635F);
  EXPECT_FLOAT_EQ(scaled[34], 1.785078127680e-4F);
  EXPECT_FLOAT_EQ(scaled[63], 3.068925989e-7F);
  for (size_t i = 0; i < 29; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
}

TEST(Parameters, CountsThePublishedSizes) {
  ModelSpec m = small_llama();
  LayerSpec layer;
  layer.attention.heads = 32, layer.attention.kv_heads = 8, layer.attention.head_dim = 128;
  layer.mlp = Dense{.features = 14336};
  m.vocab = 128256, m.hidden = 4096, m.layers = repeated(32, layer);
  EXPECT_EQ(num_parameters(m), 8030261248);  // Llama 3.1 8B
  layer.attention.heads = 9, layer.attention.kv_heads = 3, layer.attention.head_dim = 64;
  layer.mlp = Dense{.features = 1536};
  m.vocab = 49152, m.hidden = 576, m.layers = repeated(30, layer);
  m.tied_head = true;
  EXPECT_EQ(num_parameters(m), 134515008);  // SmolLM2-135M
}

TEST(Parameters, BiasesHaveNoDecay) {
  ModelSpec m = small_llama();
  change_layers(
      m, [](LayerSpec& layer) { layer.attention.bias = layer.attention.out_bias = dense_of(layer.mlp).bias = true; });
  int biases = 0;
  for (const ParamSpec& p : parameters(m)) {
    EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
    biases += p.name.ends_with(".bias");
  }
  EXPECT_EQ(biases, 14);
}

TEST(Check, ErrorsNameTheSetting) {
  ModelSpec m = small_llama();
  EXPECT_NO_THROW(check(m));
  m.layers.back().attention.kv_heads = 3;
  EXPECT_THROW(check(m), Error);
  m = small_llama();
  m.family = "mamba";
  try {
    check(m);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(error.hint().find("llama"), std::string::npos);
  }
}

TEST(Lora, TargetsMatchLikePeft) {
  LoraSpec lora;
  lora.targets = {"all-linear"};
  EXPECT_EQ(lora_parameters(small_llama(), lora).size(), 14u);  // the head is excluded
  lora.targets = {"q_proj", "lm_head"};
  EXPECT_EQ(lora_parameters(small_llama(), lora).size(), 3u);
  lora.targets = {"model.layers.1.mlp.up_proj"};
  EXPECT_EQ(lora_parameters(small_llama(), lora).size(), 1u);
  for (const char* wrong : {"proj", "query", "embed_tokens", "input_layernorm"}) {
    lora.targets = {wrong};
    EXPECT_THROW(lora_parameters(small_llama(), lora), Error) << wrong;
  }
  lora.targets = {"q_proj"};
  lora.rank = 33;
  EXPECT_THROW(lora_parameters(small_llama(), lora), Error);
}

TEST(Lora, FactorIsAlphaOverRankOrItsRoot) {
  LoraSpec lora;
  lora.rank = 16;
  lora.alpha = 32;
  EXPECT_EQ(lora.factor(), 2);
  lora.rslora = true;
  EXPECT_EQ(lora.factor(), 8);
}

// At Llama 3's vocabulary: 64 MiB of logits on a CPU, 1 GiB on a GPU.
TEST(LossChunk, IsLargerOnGpus) {
  EXPECT_EQ(loss_chunk(128256, true), 128);
  EXPECT_EQ(loss_chunk(128256, false), 2048);
  EXPECT_EQ(loss_chunk(1000, true), 1024);
  EXPECT_EQ(loss_chunk(int64_t{1} << 26, true), 64);
  EXPECT_EQ(loss_chunk(int64_t{1} << 26, false), 64);
}

}  // namespace
}  // namespace ingot::spec
