// llama and its relatives.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/llama_keys.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using spec::LayerSpec;
using spec::ModelSpec;

ModelSpec read_llama(const JsonObject& config) {
  LlamaKeys read = read_llama_keys(config, "llama", {});
  read.read_bias(config);
  read.mlp().bias = config.boolean("mlp_bias").value_or(false);
  return read.repeat(config);
}

ModelSpec read_mistral(const JsonObject& config) {
  LlamaKeys read = read_llama_keys(config, "mistral", {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32});
  const int64_t window = read.layer.attention.window = read_window(config, 4096);
  ModelSpec model = read.repeat(config);
  read_layer_types(config, model, window);
  return model;
}

ModelSpec read_gemma2(const JsonObject& config) {
  LlamaKeys read = read_llama_keys(config, "gemma2",
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
  LlamaKeys read = read_llama_keys(config, "mixtral",
                                   {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32, .epsilon = 1e-5, .theta = 1e6});
  read.layer.mlp = spec::Experts{.count = config.integer("num_local_experts").value_or(8),
                                 .per_token = config.integer("num_experts_per_tok").value_or(2),
                                 .expert = read.mlp()};
  read.layer.attention.window = read_window(config, 0);
  return read.repeat(config);
}

bool is_window_everywhere(const ModelSpec& model) {
  return std::all_of(model.layers.begin(), model.layers.end(),
                     [](const LayerSpec& layer) { return layer.attention.window > 0; });
}

// Sets which layers rotate q and k from no_rope_layers, which has a 1 for those that do, or no_rope_layer_interval.
void read_no_rope_layers(const JsonObject& config, ModelSpec& model) {
  const std::vector<int64_t> listed = config.integers("no_rope_layers");
  const int64_t interval = config.integer("no_rope_layer_interval").value_or(4);
  const bool given = config.has("no_rope_layers");
  if (given ? listed.size() < model.layers.size() : interval < 1) {
    throw_error(ErrorKind::corrupt, "{}: \"no_rope_layers\" has {} entries for {} layers, and the interval is {}",
                config.where(), listed.size(), model.num_layers(), interval);
  }
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const bool rotated = given ? listed[layer] != 0 : (static_cast<int64_t>(layer) + 1) % interval != 0;
    if (!rotated) model.layers[layer].attention.rope.reset();
  }
}

ModelSpec read_smollm3(const JsonObject& config) {
  LlamaKeys read = read_llama_keys(config, "smollm3",
                                   {.vocab = 128256,
                                    .hidden = 2048,
                                    .layers = 36,
                                    .heads = 16,
                                    .kv_heads = 4,
                                    .context = 32768,
                                    .theta = 2e6,
                                    .tied = true});
  read.read_bias(config);
  read.mlp().bias = config.boolean("mlp_bias").value_or(false);
  ModelSpec model = read.repeat(config);
  read_no_rope_layers(config, model);
  const int64_t window = config.boolean("use_sliding_window").value_or(false) ? read_window(config, 0) : 0;
  if (read_layer_types(config, model, window)) return model;
  for (LayerSpec& layer : model.layers) {
    if (!layer.attention.rope) layer.attention.window = window;
  }
  return model;
}

void write_llama(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model);
  write_llama_keys(model, layer, out);
  out["attention_bias"] = layer.attention.bias;
  out["mlp_bias"] = spec::dense_of(layer.mlp).bias;
  out["pretraining_tp"] = 1;
}

void write_mistral(const ModelSpec& model, json& out) {
  write_llama_keys(model, common_layer(model, any_window), out);
  out["sliding_window"] = window_or_null(window_of(model));
  if (window_of(model) > 0 && !is_window_everywhere(model)) write_layer_types(model, out);
}

void write_gemma2(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model, any_window);
  const spec::Attention& attention = layer.attention;
  write_llama_keys(model, layer, out);
  out["hidden_activation"] = activation_name(spec::dense_of(layer.mlp).activation);
  out["attention_bias"] = attention.bias;
  const double scale = attention.scale > 0 ? attention.scale : 1 / std::sqrt(static_cast<double>(attention.head_dim));
  out["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
  const auto cap = [](double value) { return value > 0 ? json(value) : json(nullptr); };
  out["attn_logit_softcapping"] = cap(attention.softcap);
  out["final_logit_softcapping"] = cap(model.final_softcap);
  out["sliding_window"] = window_or_null(window_of(model));
  write_layer_types(model, out);
}

void write_mixtral(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model);
  const auto& experts = std::get<spec::Experts>(layer.mlp);
  write_llama_keys(model, layer, out);
  out["sliding_window"] = window_or_null(layer.attention.window);
  out["num_local_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["output_router_logits"] = false;
}

// The layer that represents all layers in a file, for models in which some layers do not rotate q and k: it has the
// rotation of those that do.
LayerSpec common_rotated_layer(const ModelSpec& model) {
  const auto rotated = std::find_if(model.layers.begin(), model.layers.end(),
                                    [](const LayerSpec& layer) { return layer.attention.rope.has_value(); });
  const spec::Rope rope = rotated == model.layers.end() ? spec::Rope{} : *rotated->attention.rope;
  return common_layer(model, [&](LayerSpec& layer) {
    any_window(layer);
    if (!layer.attention.rope) layer.attention.rope = rope;
  });
}

void write_smollm3(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_rotated_layer(model);
  write_llama_keys(model, layer, out);
  out["attention_bias"] = layer.attention.bias;
  out["mlp_bias"] = spec::dense_of(layer.mlp).bias;
  json rotated = json::array();
  for (const LayerSpec& each : model.layers) rotated.push_back(each.attention.rope ? 1 : 0);
  out["no_rope_layers"] = std::move(rotated);
  out["pad_token_id"] = nullptr;  // transformers' default is beyond a small vocabulary
  out["use_sliding_window"] = window_of(model) > 0;
  out["sliding_window"] = window_or_null(window_of(model));
  write_layer_types(model, out);
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

constexpr size_t smollm3_interval = 4;  // every fourth layer has no rotary positions, which llama.cpp hard-codes

void read_gguf_smollm3(const GgufSource&, ModelSpec&, LayerSpec&) {}

void vary_gguf_smollm3(const GgufSource&, ModelSpec& model) {
  for (size_t layer = smollm3_interval - 1; layer < model.layers.size(); layer += smollm3_interval) {
    model.layers[layer].attention.rope.reset();
  }
}

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

void write_gguf_smollm3(const ModelSpec& model, const GgufTarget& target) {
  const LayerSpec layer = common_rotated_layer(model);
  bool every_fourth = true;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    every_fourth = every_fourth && model.layers[i].attention.rope.has_value() == ((i + 1) % smollm3_interval != 0);
  }
  target.require(every_fourth, "layers without rotary positions other than every fourth");
  target.require(spec::dense_of(layer.mlp).activation == spec::Activation::silu, "activation other than silu");
  target.require(sees_all(model), "sliding window");
  target.require(!layer.attention.out_bias && !spec::dense_of(layer.mlp).bias, "biases");
}

}  // namespace

std::span<const HfFamily> hf_llama_families() {
  static constexpr HfFamily families[] = {
      {"llama", "LlamaForCausalLM", read_llama, write_llama},
      {"mistral", "MistralForCausalLM", read_mistral, write_mistral},
      {"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2},
      {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral},
      {"smollm3", "SmolLM3ForCausalLM", read_smollm3, write_smollm3},
  };
  return families;
}

std::span<const GgufArchitecture> gguf_llama_architectures() {
  static constexpr GgufArchitecture architectures[] = {
      {"llama", "llama", read_gguf_llama, write_gguf_llama},  // also mistral and mixtral
      {"gemma2", "gemma2", read_gguf_gemma2, write_gguf_gemma2, vary_gguf_gemma2},
      {"smollm3", "smollm3", read_gguf_smollm3, write_gguf_smollm3, vary_gguf_smollm3},
  };
  return architectures;
}

}  // namespace ingot::checkpoint
