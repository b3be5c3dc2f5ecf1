#include "models/testing/family_specs.h"

#include <cmath>
#include <functional>

namespace ingot::models {

namespace {

using spec::ModelSpec;

ModelSpec small(const std::string& family) {
  ModelSpec m;
  m.family = family;
  m.vocab = 40;
  m.hidden = 32;
  m.layers = 3;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn = 24;
  m.context = 64;
  m.initializer_range = 0.2;
  return m;
}

// The common part of families with LayerNorm and an ungated MLP.
ModelSpec small_layer_norm(const std::string& family) {
  ModelSpec m = small(family);
  m.kv_heads = m.heads;
  m.norm = spec::NormKind::layer;
  m.norm_epsilon = 1e-5;
  m.fused_qkv = true;
  m.gated_mlp = false;
  return m;
}

void set_biases(ModelSpec& m) { m.attention_bias = m.attention_out_bias = m.mlp_bias = m.norm_bias = true; }

ModelSpec gpt2() {
  ModelSpec m = small_layer_norm("gpt2");
  set_biases(m);
  m.positions = spec::Positions::learned;
  m.activation = spec::Activation::gelu_tanh;
  m.tied_head = true;
  return m;
}

ModelSpec gpt_neox() {
  ModelSpec m = small_layer_norm("gpt_neox");
  set_biases(m);
  m.qkv_by_head = true;
  m.rotary_dim = 4;
  m.parallel_residual = true;
  m.activation = spec::Activation::gelu;
  return m;
}

ModelSpec mpt() {
  ModelSpec m = small_layer_norm("mpt");
  m.positions = spec::Positions::alibi;
  m.activation = spec::Activation::gelu;
  m.tied_head = true;
  return m;
}

ModelSpec gemma2() {
  ModelSpec m = small("gemma2");
  m.norm_weight_offset = 1;
  m.post_norms = true;
  m.window = 5;
  m.window_pattern = spec::WindowPattern::even;
  m.attention_softcap = 2;
  m.attention_scale = 0.5;
  m.final_softcap = 3;
  m.embedding_scale = std::sqrt(32.0);
  m.activation = spec::Activation::gelu_tanh;
  m.tied_head = true;
  return m;
}

std::vector<FamilyCase> make_cases() {
  std::vector<FamilyCase> cases;
  const auto add = [&](const std::string& name, ModelSpec spec, const std::function<void(ModelSpec&)>& change = {}) {
    if (change) change(spec);
    cases.push_back({name, std::move(spec)});
  };
  add("llama", small("llama"));
  add("llama_biases", small("llama"), [](ModelSpec& m) {
    m.attention_bias = m.attention_out_bias = m.mlp_bias = true;
    m.tied_head = true;
  });
  add("mistral", small("mistral"), [](ModelSpec& m) { m.window = 5; });
  add("qwen2", small("qwen2"), [](ModelSpec& m) {
    m.attention_bias = true;
    m.tied_head = true;
  });
  add("qwen3", small("qwen3"), [](ModelSpec& m) {
    m.head_dim = 12;
    m.qk_norm = spec::QkNorm::head;
  });
  add("gemma2", gemma2());
  add("mixtral", small("mixtral"), [](ModelSpec& m) {
    m.experts = 5;
    m.experts_per_token = 2;
  });
  add("mixtral_all_experts", small("mixtral"), [](ModelSpec& m) { m.experts = m.experts_per_token = 4; });
  add("gpt2", gpt2());
  add("gpt_neox", gpt_neox());
  add("gpt_neox_sequential", gpt_neox(), [](ModelSpec& m) {
    m.parallel_residual = false;
    m.rotary_dim = 8;
    m.tied_head = true;
  });
  add("mpt", mpt());
  add("mpt_all", mpt(), [](ModelSpec& m) {
    set_biases(m);
    m.positions = spec::Positions::learned;
    m.clip_qkv = 2.5;
    m.qk_norm = spec::QkNorm::all_heads;
    m.kv_heads = 2;
    m.logit_scale = 0.25;
  });
  add("mpt_rotary", mpt(), [](ModelSpec& m) {
    m.positions = spec::Positions::rotary;
    m.kv_heads = 1;
    m.window = 6;
  });
  return cases;
}

}  // namespace

const std::vector<FamilyCase>& family_cases() {
  static const std::vector<FamilyCase> cases = make_cases();
  return cases;
}

}  // namespace ingot::models
