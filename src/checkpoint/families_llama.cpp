// llama and the families with the same keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/family_formats.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using spec::LayerSpec;
using spec::ModelSpec;

// Defaults of the transformers configuration classes for missing keys.
struct Defaults {
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
struct Common {
  ModelSpec model;
  LayerSpec layer;
  int64_t count = 0;

  spec::Dense& mlp() { return spec::dense_of(layer.mlp); }
  void read_bias(const JsonObject& config) {
    layer.attention.bias = layer.attention.out_bias = config.boolean("attention_bias").value_or(false);
  }
  // The model of `count` such layers.
  ModelSpec repeat(const JsonObject& config) {
    set_layers(config, model, count, layer);
    return std::move(model);
  }
};

Common read_common(const JsonObject& config, const char* family, const Defaults& defaults) {
  Common read;
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

ModelSpec read_llama(const JsonObject& config) {
  Common read = read_common(config, "llama", {});
  read.read_bias(config);
  read.mlp().bias = config.boolean("mlp_bias").value_or(false);
  return read.repeat(config);
}

// The key sliding_window; `missing` where it is not given, 0 where it is null.
int64_t read_window(const JsonObject& config, int64_t missing) {
  return config.integer("sliding_window").value_or(config.is_null("sliding_window") ? 0 : missing);
}

// Sets the layers' windows from layer_types; returns false if the file does not have that key.
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

ModelSpec read_mistral(const JsonObject& config) {
  Common read = read_common(config, "mistral", {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32});
  const int64_t window = read.layer.attention.window = read_window(config, 4096);
  ModelSpec model = read.repeat(config);
  read_layer_types(config, model, window);
  return model;
}

// The model of a Qwen configuration. Its sliding window: in layers from max_window_layers on, and only with
// use_sliding_window.
ModelSpec repeat_qwen(const JsonObject& config, Common read) {
  ModelSpec model = read.repeat(config);
  const bool used = config.boolean("use_sliding_window").value_or(false);
  const int64_t window = used ? read_window(config, 4096) : 0;
  if (read_layer_types(config, model, window)) return model;
  const int64_t full = config.integer("max_window_layers").value_or(28);
  for (int64_t layer = std::max<int64_t>(full, 0); layer < model.num_layers(); ++layer) {
    model.layers[static_cast<size_t>(layer)].attention.window = window;
  }
  return model;
}

ModelSpec read_qwen2(const JsonObject& config) {
  Common read = read_common(config, "qwen2", {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .context = 32768});
  read.layer.attention.bias = true;
  return repeat_qwen(config, std::move(read));
}

ModelSpec read_qwen3(const JsonObject& config) {
  Common read =
      read_common(config, "qwen3", {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .head_dim = 128, .context = 32768});
  read.read_bias(config);
  read.layer.attention.qk_norm = spec::QkNorm::head;
  return repeat_qwen(config, std::move(read));
}

ModelSpec read_gemma2(const JsonObject& config) {
  Common read = read_common(config, "gemma2",
                            {.vocab = 256000,
                             .hidden = 2304,
                             .ffn = 9216,
                             .layers = 26,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .context = 8192,
                             .tied = true,
                             .activation_key = "hidden_activation",
                             .activation = "gelu_pytorch_tanh"});
  require_value(config, "use_bidirectional_attention", false);
  read.read_bias(config);
  read.layer.post_norms = true;
  read.model.norm_weight_offset = 1;
  read.model.embedding_scale = std::sqrt(static_cast<double>(read.model.hidden));
  const double scalar = config.number("query_pre_attn_scalar").value_or(256);
  if (!(scalar > 0))
    throw_error(ErrorKind::corrupt, "{}: query_pre_attn_scalar is {}; it must be above 0", config.where(), scalar);
  read.layer.attention.scale = 1 / std::sqrt(scalar);
  const auto cap = [&](const char* key, double missing) {
    return config.number(key).value_or(config.is_null(key) ? 0 : missing);
  };
  read.layer.attention.softcap = cap("attn_logit_softcapping", 50);
  read.model.final_softcap = cap("final_logit_softcapping", 30);
  ModelSpec model = read.repeat(config);
  const int64_t window = read_window(config, 4096);
  if (read_layer_types(config, model, window)) return model;
  for (size_t layer = 0; layer < model.layers.size(); layer += 2) model.layers[layer].attention.window = window;
  return model;
}

ModelSpec read_mixtral(const JsonObject& config) {
  Common read = read_common(config, "mixtral",
                            {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32, .epsilon = 1e-5, .theta = 1e6});
  read.layer.mlp = spec::Experts{.count = config.integer("num_local_experts").value_or(8),
                                 .per_token = config.integer("num_experts_per_tok").value_or(2),
                                 .expert = read.mlp()};
  read.layer.attention.window = read_window(config, 0);
  return read.repeat(config);
}

const char* activation_name(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::silu: return "silu";
    case spec::Activation::gelu: return "gelu";
    case spec::Activation::gelu_tanh: return "gelu_pytorch_tanh";
  }
  return "";
}

// What one layer, which stands for all, has in config.json.
void write_common(const ModelSpec& model, const LayerSpec& layer, json& out) {
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

void any_window(LayerSpec& layer) { layer.attention.window = 0; }

// The window of the layers that have one; 0 when none has.
int64_t window_of(const ModelSpec& model) {
  int64_t window = 0;
  for (const LayerSpec& layer : model.layers) window = std::max(window, layer.attention.window);
  return window;
}

bool is_window_everywhere(const ModelSpec& model) {
  return std::all_of(model.layers.begin(), model.layers.end(),
                     [](const LayerSpec& layer) { return layer.attention.window > 0; });
}

json or_null(int64_t window) { return window > 0 ? json(window) : json(nullptr); }

void write_layer_types(const ModelSpec& model, json& out) {
  json types = json::array();
  for (const LayerSpec& layer : model.layers) {
    types.push_back(layer.attention.window > 0 ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
}

void write_llama(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model);
  write_common(model, layer, out);
  out["attention_bias"] = layer.attention.bias;
  out["mlp_bias"] = spec::dense_of(layer.mlp).bias;
  out["pretraining_tp"] = 1;
}

void write_mistral(const ModelSpec& model, json& out) {
  write_common(model, common_layer(model, any_window), out);
  out["sliding_window"] = or_null(window_of(model));
  if (window_of(model) > 0 && !is_window_everywhere(model)) write_layer_types(model, out);
}

void write_qwen_window(const ModelSpec& model, json& out) {
  const int64_t window = window_of(model);
  out["use_sliding_window"] = window > 0;
  out["sliding_window"] = or_null(window);
  out["max_window_layers"] = window > 0 ? 0 : model.num_layers();
  if (window > 0) write_layer_types(model, out);
}

void write_qwen2(const ModelSpec& model, json& out) {
  write_common(model, common_layer(model, any_window), out);
  write_qwen_window(model, out);
}

void write_qwen3(const ModelSpec& model, json& out) {
  write_qwen2(model, out);
  out["attention_bias"] = model.layers.front().attention.bias;
}

void write_gemma2(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model, any_window);
  const spec::Attention& attention = layer.attention;
  write_common(model, layer, out);
  out["hidden_activation"] = activation_name(spec::dense_of(layer.mlp).activation);
  out["attention_bias"] = attention.bias;
  const double scale = attention.scale > 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(attention.head_dim));
  out["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
  const auto cap = [](double value) { return value > 0 ? json(value) : json(nullptr); };
  out["attn_logit_softcapping"] = cap(attention.softcap);
  out["final_logit_softcapping"] = cap(model.final_softcap);
  out["sliding_window"] = or_null(window_of(model));
  write_layer_types(model, out);
}

void write_mixtral(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model);
  const auto& experts = std::get<spec::Experts>(layer.mlp);
  write_common(model, layer, out);
  out["sliding_window"] = or_null(layer.attention.window);
  out["num_local_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["output_router_logits"] = false;
}

// GGUF.

void read_gguf_llama(const GgufSource& source, ModelSpec& model, LayerSpec& layer) {
  const int64_t experts = source.integer("expert_count", 0);
  layer.attention.window = source.integer("attention.sliding_window", 0);
  if (layer.attention.window > 0) model.family = "mistral";
  if (experts == 0) return;
  model.family = "mixtral";
  layer.mlp = spec::Experts{
      .count = experts, .per_token = source.integer("expert_used_count"), .expert = spec::dense_of(layer.mlp)};
}

void read_gguf_qwen2(const GgufSource& source, ModelSpec&, LayerSpec&) {
  if (source.integer("attention.sliding_window", 0) > 0) {
    throw_error(ErrorKind::unsupported, "{}: {} is not supported", source.file, source.key("attention.sliding_window"));
  }
}

void read_gguf_qwen3(const GgufSource& source, ModelSpec& model, LayerSpec& layer) {
  layer.attention.qk_norm = spec::QkNorm::head;
  read_gguf_qwen2(source, model, layer);
}

double gemma2_scale(const ModelSpec& model, int64_t layers, const spec::Attention& attention) {
  // llama.cpp recognises the 27B model by its number of layers; it has another query scale.
  const int64_t scalar = layers == 46 ? model.hidden / attention.heads : attention.head_dim;
  return 1 / std::sqrt(static_cast<double>(scalar));
}

void read_gguf_gemma2(const GgufSource& source, ModelSpec& model, LayerSpec& layer) {
  spec::dense_of(layer.mlp).activation = spec::Activation::gelu_tanh;
  layer.post_norms = true;
  spec::Attention& attention = layer.attention;
  attention.scale = attention.heads > 0 ? gemma2_scale(model, source.integer("block_count"), attention) : 0;
  attention.softcap = source.real("attn_logit_softcapping", 50);
  model.norm_weight_offset = 1;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  model.final_softcap = source.real("final_logit_softcapping", 30);
  model.tied_head = true;
}

void vary_gguf_gemma2(const GgufSource& source, ModelSpec& model) {
  const int64_t window = source.integer("attention.sliding_window", 4096);
  for (size_t layer = 0; layer < model.layers.size(); layer += 2) model.layers[layer].attention.window = window;
}

// A sliding window at least as long as the context has no effect.
bool sees_all(const ModelSpec& model) { return window_of(model) == 0 || window_of(model) >= model.context; }

void write_gguf_llama(const ModelSpec& model, const GgufTarget& target) {
  const LayerSpec layer = common_layer(model, any_window);
  if (!sees_all(model)) {
    throw_hint(
        ErrorKind::unsupported,
        fmt::format("set sliding_window to null in config.json if texts stay within {} tokens", window_of(model)),
        "llama.cpp's architecture 'llama' has no sliding window, which this model needs");
  }
  target.require(spec::dense_of(layer.mlp).activation == spec::Activation::silu, "activation other than silu");
  const spec::Experts* experts = spec::experts_of(layer.mlp);
  if (experts == nullptr) return;
  target.count("expert_count", experts->count);
  target.count("expert_used_count", experts->per_token);
}

void write_gguf_qwen3(const ModelSpec& model, const GgufTarget& target) {
  const LayerSpec layer = common_layer(model, any_window);
  target.require(spec::dense_of(layer.mlp).activation == spec::Activation::silu, "activation other than silu");
  target.require(sees_all(model), "sliding window");
  target.require(!layer.attention.out_bias, "bias in the attention output");
}

void write_gguf_qwen2(const ModelSpec& model, const GgufTarget& target) {
  write_gguf_qwen3(model, target);
  target.require(model.layers.front().attention.query_width() == model.hidden, "head size other than hidden / heads");
}

void write_gguf_gemma2(const ModelSpec& model, const GgufTarget& target) {
  const spec::Attention attention = common_layer(model, any_window).attention;
  const int64_t window = window_of(model);
  bool every_second = true;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    every_second = every_second && model.layers[layer].attention.window == (layer % 2 == 0 ? window : 0);
  }
  target.require(!attention.out_bias, "bias in the attention output");
  target.require(model.tied_head, "output head separate from the embedding");
  target.require(attention.softcap > 0 && model.final_softcap > 0, "option without soft caps");
  target.require(spec::dense_of(model.layers.front().mlp).activation == spec::Activation::gelu_tanh,
                 "activation other than gelu_pytorch_tanh");
  target.require(every_second, "sliding window in other layers than every second one");
  target.require(std::abs(attention.scale - gemma2_scale(model, model.num_layers(), attention)) < 1e-9,
                 "support for this query_pre_attn_scalar");
  target.real("attn_logit_softcapping", attention.softcap);
  target.real("final_logit_softcapping", model.final_softcap);
  target.count("attention.sliding_window", window > 0 ? window : model.context);
}

}  // namespace

std::span<const HfFamily> hf_llama_families() {
  static constexpr HfFamily families[] = {
      {"llama", "LlamaForCausalLM", read_llama, write_llama},
      {"mistral", "MistralForCausalLM", read_mistral, write_mistral},
      {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2},
      {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3},
      {"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2},
      {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral},
  };
  return families;
}

std::span<const GgufArchitecture> gguf_llama_architectures() {
  static constexpr GgufArchitecture architectures[] = {
      {"llama", "llama", read_gguf_llama, write_gguf_llama},  // also mistral and mixtral
      {"qwen2", "qwen2", read_gguf_qwen2, write_gguf_qwen2},
      {"qwen3", "qwen3", read_gguf_qwen3, write_gguf_qwen3},
      {"gemma2", "gemma2", read_gguf_gemma2, write_gguf_gemma2, vary_gguf_gemma2},
  };
  return architectures;
}

}  // namespace ingot::checkpoint
