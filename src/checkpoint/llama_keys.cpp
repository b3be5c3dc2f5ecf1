#include "checkpoint/llama_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot::checkpoint {

using nlohmann::json;
using spec::LayerSpec;
using spec::ModelSpec;

void LlamaKeys::read_bias(const JsonObject& config) {
  layer.attention.bias = layer.attention.out_bias = config.boolean("attention_bias").value_or(false);
}

ModelSpec LlamaKeys::repeat(const JsonObject& config) {
  set_layers(config, model, count, layer);
  return std::move(model);
}

LlamaKeys read_llama_keys(const JsonObject& config, const char* family, const LlamaDefaults& defaults) {
  LlamaKeys read;
  ModelSpec& model = read.model;
  spec::Attention& attention = read.layer.attention;
  model.family = family;
  model.vocab = config.integer("vocab_size").value_or(defaults.vocab);
  model.hidden = config.integer("hidden_size").value_or(defaults.hidden);
  read.mlp().features = config.integer("intermediate_size").value_or(defaults.ffn);
  read.count = config.integer("num_hidden_layers").value_or(defaults.layers);
  attention.heads = config.integer("num_attention_heads").value_or(defaults.heads);
  // null differs from a missing key: it means as many as heads.
  const std::optional<int64_t> kv_heads = config.is_null("num_key_value_heads") ? std::nullopt : defaults.kv_heads;
  attention.kv_heads = config.integer("num_key_value_heads").value_or(kv_heads.value_or(attention.heads));
  attention.head_dim = read_head_dim(config, model.hidden, attention.heads,
                                     config.is_null("head_dim") ? std::nullopt : defaults.head_dim);
  model.context = config.integer("max_position_embeddings").value_or(defaults.context);
  model.norm_epsilon = config.number("rms_norm_eps").value_or(defaults.epsilon);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(defaults.tied);
  const double rotated = read_rope(config, *attention.rope, defaults.theta, 1.0);
  if (rotated != 1.0) {
    throw_error(ErrorKind::unsupported,
                "{}: rotary embedding of only a part of each head (partial_rotary_factor {}) is not supported",
                config.where(), rotated);
  }
  read.mlp().activation = read_activation(config, defaults.activation_key, defaults.activation);
  return read;
}

int64_t read_window(const JsonObject& config, int64_t missing) {
  return config.integer("sliding_window").value_or(config.is_null("sliding_window") ? 0 : missing);
}

bool read_layer_types(const JsonObject& config, ModelSpec& model, int64_t window) {
  if (!config.has("layer_types")) return false;
  const std::vector<std::string> types = config.strings("layer_types");
  if (types.size() != model.layers.size()) {
    throw_error(ErrorKind::corrupt, "{}: \"layer_types\" has {} entries for {} layers", config.where(), types.size(),
                model.num_layers());
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "full_attention" && types[layer] != "sliding_attention") {
      throw_hint(ErrorKind::unsupported, "supported: full_attention, sliding_attention",
                 "{}: \"layer_types\": '{}' is not supported", config.where(), types[layer]);
    }
    model.layers[layer].attention.window = types[layer] == "sliding_attention" ? window : 0;
  }
  return true;
}

const char* activation_name(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::silu: return "silu";
    case spec::Activation::gelu: return "gelu";
    case spec::Activation::gelu_tanh: return "gelu_pytorch_tanh";
  }
  return "";
}

void write_llama_keys(const ModelSpec& model, const LayerSpec& layer, json& out) {
  const spec::Attention& attention = layer.attention;
  out["hidden_size"] = model.hidden;
  out["intermediate_size"] = spec::dense_of(layer.mlp).features;
  out["num_hidden_layers"] = model.num_layers();
  out["num_attention_heads"] = attention.heads;
  out["num_key_value_heads"] = attention.kv_heads;
  out["head_dim"] = attention.head_dim;
  out["hidden_act"] = activation_name(spec::dense_of(layer.mlp).activation);
  out["max_position_embeddings"] = model.context;
  out["rms_norm_eps"] = model.norm_epsilon;
  out["attention_dropout"] = 0.0;
  write_rope(attention.rope.value_or(spec::Rope{}), out);
}

int64_t window_of(const ModelSpec& model) {
  int64_t window = 0;
  for (const LayerSpec& layer : model.layers) window = std::max(window, layer.attention.window);
  return window;
}

json window_or_null(int64_t window) { return window > 0 ? json(window) : json(nullptr); }

void write_layer_types(const ModelSpec& model, json& out) {
  json types = json::array();
  for (const LayerSpec& layer : model.layers) {
    types.push_back(layer.attention.window > 0 ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
}

}  // namespace ingot::checkpoint
