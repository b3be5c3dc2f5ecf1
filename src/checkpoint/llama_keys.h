// The keys of config.json that llama and its relatives have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "checkpoint/family_formats.h"

namespace ingot::checkpoint {

// Defaults of the transformers configuration classes for missing keys.
struct LlamaDefaults {
  int64_t vocab = 32000;
  int64_t hidden = 4096;
  int64_t ffn = 11008;
  int64_t layers = 32;
  int64_t heads = 32;
  std::optional<int64_t> kv_heads;  // none: as many as heads
  std::optional<int64_t> head_dim;  // none: hidden / heads
  int64_t context = 2048;
  double epsilon = 1e-6;
  double theta = 10000;
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
};

// A configuration whose layers are all alike so far.
struct LlamaKeys {
  spec::ModelSpec model;
  spec::LayerSpec layer;
  int64_t count = 0;

  spec::Dense& mlp() { return spec::dense_of(layer.mlp); }
  // attention_bias: on q, k, v and o.
  void read_bias(const JsonObject& config);
  // The model of `count` such layers.
  spec::ModelSpec repeat(const JsonObject& config);
};

LlamaKeys read_llama_keys(const JsonObject& config, const char* family, const LlamaDefaults& defaults);

// The key sliding_window; `missing` where it is not given, 0 where it is null.
int64_t read_window(const JsonObject& config, int64_t missing);

// Sets the layers' windows from layer_types; returns false if the file does not have that key.
bool read_layer_types(const JsonObject& config, spec::ModelSpec& model, int64_t window);

// Writes the keys of config.json that describe a layer; `layer` represents all of them.
void write_llama_keys(const spec::ModelSpec& model, const spec::LayerSpec& layer, nlohmann::json& out);

// For `vary` of common_layer: windows may differ between layers.
inline void any_window(spec::LayerSpec& layer) { layer.attention.window = 0; }

// The window of the layers that have one; 0 when none has.
int64_t window_of(const spec::ModelSpec& model);

// Whether no window is shorter than the context.
inline bool sees_all(const spec::ModelSpec& model) {
  return window_of(model) == 0 || window_of(model) >= model.context;
}

// The window, or null for 0.
nlohmann::json window_or_null(int64_t window);

void write_layer_types(const spec::ModelSpec& model, nlohmann::json& out);

// Of config.json, "gelu_pytorch_tanh" for instance.
const char* activation_name(spec::Activation activation);

}  // namespace ingot::checkpoint
