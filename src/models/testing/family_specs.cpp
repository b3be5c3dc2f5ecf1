#include "models/testing/family_specs.h"

#include <cmath>
#include <functional>

#include "base/error.h"

namespace ingot::models {

namespace {

using spec::LayerSpec;
using spec::ModelSpec;

constexpr int64_t num_layers = 3;

// What a family changes of a small model: the model, and the layer that stands for all.
using Change = std::function<void(ModelSpec&, LayerSpec&)>;

ModelSpec small(const std::string& family, const Change& change = {}) {
  ModelSpec m;
  m.family = family;
  m.vocab = 40;
  m.hidden = 32;
  m.context = 64;
  m.initializer_range = 0.2;
  LayerSpec layer;
  layer.attention.heads = 4;
  layer.attention.kv_heads = 2;
  layer.attention.head_dim = 8;
  layer.mlp = spec::Dense{.features = 24};
  if (change) change(m, layer);
  m.layers = spec::repeated(num_layers, layer);
  return m;
}

// A family with LayerNorm and an ungated MLP.
ModelSpec small_layer_norm(const std::string& family, spec::Activation activation, const Change& change) {
  return small(family, [&](ModelSpec& m, LayerSpec& layer) {
    layer.attention.kv_heads = layer.attention.heads;
    layer.attention.fused_qkv = true;
    layer.mlp = spec::Dense{.features = 24, .activation = activation, .gated = false};
    m.norm = spec::NormKind::layer;
    m.norm_epsilon = 1e-5;
    change(m, layer);
  });
}

void set_biases(ModelSpec& m, LayerSpec& layer) {
  layer.attention.bias = layer.attention.out_bias = spec::dense_of(layer.mlp).bias = m.norm_bias = true;
}

ModelSpec gpt2() {
  return small_layer_norm("gpt2", spec::Activation::gelu_tanh, [](ModelSpec& m, LayerSpec& layer) {
    set_biases(m, layer);
    layer.attention.rope.reset();
    m.learned_positions = true;
    m.tied_head = true;
  });
}

ModelSpec gpt_neox(const Change& change = {}) {
  return small_layer_norm("gpt_neox", spec::Activation::gelu, [&](ModelSpec& m, LayerSpec& layer) {
    set_biases(m, layer);
    layer.attention.qkv_by_head = true;
    layer.attention.rope->dim = 4;
    layer.parallel_residual = true;
    if (change) change(m, layer);
  });
}

ModelSpec mpt(const Change& change = {}) {
  return small_layer_norm("mpt", spec::Activation::gelu, [&](ModelSpec& m, LayerSpec& layer) {
    layer.attention.rope.reset();
    layer.attention.alibi = true;
    m.tied_head = true;
    if (change) change(m, layer);
  });
}

ModelSpec gemma2() {
  ModelSpec m = small("gemma2", [](ModelSpec& model, LayerSpec& layer) {
    model.norm_weight_offset = 1;
    model.final_softcap = 3;
    model.embedding_scale = std::sqrt(32.0);
    model.tied_head = true;
    layer.post_norms = true;
    layer.attention.softcap = 2;
    layer.attention.scale = 0.5;
    spec::dense_of(layer.mlp).activation = spec::Activation::gelu_tanh;
  });
  for (size_t layer = 0; layer < m.layers.size(); layer += 2) m.layers[layer].attention.window = 5;
  return m;
}

ModelSpec mixtral(int64_t experts, int64_t per_token) {
  return small("mixtral", [&](ModelSpec&, LayerSpec& layer) {
    layer.mlp = spec::Experts{.count = experts, .per_token = per_token, .expert = spec::dense_of(layer.mlp)};
  });
}

// Every `interval`-th layer without rotary positions.
ModelSpec smollm3(int64_t layers, int64_t interval) {
  ModelSpec m = small("smollm3");
  m.layers = spec::repeated(layers, m.layers.front());
  for (int64_t layer = interval - 1; layer < layers; layer += interval) {
    m.layers[static_cast<size_t>(layer)].attention.rope.reset();
  }
  m.tied_head = true;
  return m;
}

ModelSpec qwen3_moe(int64_t experts, int64_t per_token) {
  return small("qwen3_moe", [&](ModelSpec&, LayerSpec& layer) {
    layer.attention.head_dim = 12;
    layer.attention.qk_norm = spec::QkNorm::head;
    layer.mlp = spec::Experts{.count = experts, .per_token = per_token, .expert = {.features = 12}};
  });
}

std::vector<FamilyCase> make_cases() {
  std::vector<FamilyCase> cases;
  const std::vector<std::string> llama = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  const std::vector<std::string> experts = {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "w1", "w2", "w3"};
  const std::vector<std::string> neox = {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"};
  const std::vector<std::string> mosaic = {"Wqkv", "out_proj", "up_proj", "down_proj"};
  const auto add = [&](const std::string& name, const std::vector<std::string>& linear_layers, ModelSpec spec) {
    cases.push_back({name, std::move(spec), linear_layers});
  };
  add("llama", llama, small("llama"));
  add("llama_biases", llama, small("llama", [](ModelSpec& m, LayerSpec& layer) {
        layer.attention.bias = layer.attention.out_bias = spec::dense_of(layer.mlp).bias = true;
        m.tied_head = true;
      }));
  add("mistral", llama, small("mistral", [](ModelSpec&, LayerSpec& layer) { layer.attention.window = 5; }));
  add("qwen2", llama, small("qwen2", [](ModelSpec& m, LayerSpec& layer) {
        layer.attention.bias = true;
        m.tied_head = true;
      }));
  add("qwen3", llama, small("qwen3", [](ModelSpec&, LayerSpec& layer) {
        layer.attention.head_dim = 12;
        layer.attention.qk_norm = spec::QkNorm::head;
      }));
  const std::vector<std::string> moe = {"q_proj", "k_proj",    "v_proj",  "o_proj",
                                        "gate",   "gate_proj", "up_proj", "down_proj"};
  add("qwen3_moe", moe, qwen3_moe(6, 3));
  add("qwen3_moe_dense_layer", moe, [] {
    ModelSpec m = qwen3_moe(4, 4);
    m.layers[1].mlp = spec::Dense{.features = 24};
    return m;
  }());
  add("gemma2", llama, gemma2());
  add("mixtral", experts, mixtral(5, 2));
  add("mixtral_all_experts", experts, mixtral(4, 4));
  add("smollm3", llama, smollm3(4, 4));
  add("smollm3_windows", llama, [] {
    ModelSpec m = smollm3(3, 2);
    m.tied_head = false;
    m.layers[1].attention.window = 5;
    return m;
  }());
  add("gpt2", {"c_attn", "c_proj", "c_fc"}, gpt2());
  add("gpt_neox", neox, gpt_neox());
  add("gpt_neox_sequential", neox, gpt_neox([](ModelSpec& m, LayerSpec& layer) {
        layer.parallel_residual = false;
        layer.attention.rope->dim = 8;
        m.tied_head = true;
      }));
  add("mpt", mosaic, mpt());
  add("mpt_all", mosaic, mpt([](ModelSpec& m, LayerSpec& layer) {
        set_biases(m, layer);
        m.learned_positions = true;
        m.logit_scale = 0.25;
        layer.attention.alibi = false;
        layer.attention.clip_qkv = 2.5;
        layer.attention.qk_norm = spec::QkNorm::all_heads;
        layer.attention.kv_heads = 2;
      }));
  add("mpt_rotary", mosaic, mpt([](ModelSpec&, LayerSpec& layer) {
        layer.attention.alibi = false;
        layer.attention.rope = spec::Rope{};
        layer.attention.kv_heads = 1;
        layer.attention.window = 6;
      }));
  return cases;
}

}  // namespace

const std::vector<FamilyCase>& family_cases() {
  static const std::vector<FamilyCase> cases = make_cases();
  return cases;
}

bool can_be_cut(const spec::ModelSpec& spec, const spec::ModelShard& part) {
  try {
    spec::check(spec, part);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace ingot::models
