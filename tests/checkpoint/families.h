// Tiny models of every family, as config.json, with random weights in memory.
#pragma once

#include <algorithm>
#include <random>

#include "checkpoint/hf_config.h"
#include "models/testing/family_specs.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {

struct TinyFamily {
  std::string name;    // of the test
  std::string config;  // keys of transformers 4 or 5, or of llm-foundry
  bool gguf = true;    // llama.cpp supports the architecture
};

inline spec::ModelSpec spec_of_config(const std::string& config) {
  return parse_hf_config(config, "config.json").model;
}

// Configurations written by hand, also with keys that Ingot reads but does not write.
inline std::vector<TinyFamily> configurations() {
  return {
      {"mistral", R"({"model_type": "mistral", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 64, "sliding_window": null, "rope_parameters": {"rope_theta": 1000.0}})"},
      {"mistral_window", R"({"model_type": "mistral", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "sliding_window": 8, "rope_theta": 10000.0})",
       false},
      {"mixtral", R"({"model_type": "mixtral", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3,
        "num_experts_per_tok": 2, "max_position_embeddings": 64})"},
      {"qwen2", R"({"model_type": "qwen2", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 1, "tie_word_embeddings": true})"},
      {"qwen3", R"({"model_type": "qwen3", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "head_dim": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "layer_types": ["full_attention", "full_attention"]})"},
      {"gemma2", R"({"model_type": "gemma2", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "head_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "sliding_window": 8, "query_pre_attn_scalar": 16})"},
      {"gpt2",
       R"({"model_type": "gpt2", "vocab_size": 48, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64})"},
      {"gpt_neox", R"({"model_type": "gpt_neox", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "rotary_pct": 0.25,
        "rotary_emb_base": 1000})"},
      {"mpt", R"({"model_type": "mpt", "vocab_size": 48, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
        "attn_config": {"clip_qkv": 1.5, "alibi": true}})"},
      {"mpt_foundry", R"({"model_type": "mpt", "architectures": ["MPTForCausalLM"], "vocab_size": 48, "d_model": 32,
        "n_layers": 2, "n_heads": 4, "expansion_ratio": 2, "max_seq_len": 64, "logit_scale": "inv_sqrt_d_model",
        "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2, "qk_ln": true}})",
       false},
      {"mpt_learned", R"({"model_type": "mpt", "architectures": ["MPTForCausalLM"], "vocab_size": 48, "d_model": 32,
        "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "attn_config": {"qk_ln": true}})"},
  };
}

// Those, and the first case of every other family (models/testing/family_specs.h), written by Ingot, with row sizes
// that are multiples of the quantization block.
inline const std::vector<TinyFamily>& tiny_families() {
  static const std::vector<TinyFamily> families = [] {
    std::vector<TinyFamily> all = configurations();
    std::vector<std::string> seen = {"llama"};  // the other tests of this folder cover it
    for (const TinyFamily& family : all) seen.push_back(spec_of_config(family.config).family);
    for (const models::FamilyCase& c : models::family_cases()) {
      if (std::find(seen.begin(), seen.end(), c.spec.family) != seen.end()) continue;
      seen.push_back(c.spec.family);
      HfConfig config{.model = c.spec};
      config.model.initializer_range = 0.02;  // GGUF files do not store it
      for (spec::LayerSpec& layer : config.model.layers) {
        layer.attention.head_dim = 16;
        spec::dense_of(layer.mlp).features = 64;
      }
      all.push_back({c.name, write_hf_config(config)});
    }
    return all;
  }();
  return families;
}

// A model in memory whose values are all exact in bf16 and differ from each other.
struct RandomModel {
  spec::ModelSpec spec;
  WeightSet weights;

  explicit RandomModel(spec::ModelSpec of) : spec(std::move(of)) {
    std::mt19937 random(5);
    for (const spec::ParamSpec& p : spec::parameters(spec)) {
      auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(p.elements()));
      // Magnitudes from 1 to 2, so that adding the norm offset of Gemma's GGUF files rounds nothing.
      for (float& value : *values) {
        value = (random() % 2 == 0 ? 1.0F : -1.0F) * (1.0F + static_cast<float>(random() % 128) / 128.0F);
      }
      Parameter parameter;
      if (p.shape.size() == 2) {
        parameter.matrix = Weight{StorageType::f32, values->data(), p.shape[0], p.shape[1], nullptr};
      } else {
        parameter.vector = Tensor{values->data(), DType::f32, Shape{p.shape[0]}, nullptr};
      }
      weights.parameters.push_back(parameter);
      weights.owners.push_back(values);
    }
  }
};

inline void expect_same_weights(const WeightSet& a, const WeightSet& b, const spec::ModelSpec& model) {
  const auto table = spec::parameters(model);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(values_of(a.parameters[i]), values_of(b.parameters[i])) << table[i].name;
  }
}

}  // namespace ingot::checkpoint
