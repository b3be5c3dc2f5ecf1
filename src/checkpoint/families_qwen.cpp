// qwen2 and qwen3.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/llama_keys.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using spec::LayerSpec;
using spec::ModelSpec;

// The model of a Qwen configuration. Its sliding window: in layers from max_window_layers on, and only with
// use_sliding_window.
ModelSpec repeat_qwen(const JsonObject& config, LlamaKeys read) {
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
  LlamaKeys read = read_llama_keys(config, "qwen2", {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .context = 32768});
  read.layer.attention.bias = true;
  return repeat_qwen(config, std::move(read));
}

ModelSpec read_qwen3(const JsonObject& config) {
  LlamaKeys read = read_llama_keys(config, "qwen3",
                                   {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .head_dim = 128, .context = 32768});
  read.read_bias(config);
  read.layer.attention.qk_norm = spec::QkNorm::head;
  return repeat_qwen(config, std::move(read));
}

void write_qwen_window(const ModelSpec& model, json& out) {
  const int64_t window = window_of(model);
  out["use_sliding_window"] = window > 0;
  out["sliding_window"] = window_or_null(window);
  out["max_window_layers"] = window > 0 ? 0 : model.num_layers();
  if (window > 0) write_layer_types(model, out);
}

void write_qwen2(const ModelSpec& model, json& out) {
  write_llama_keys(model, common_layer(model, any_window), out);
  write_qwen_window(model, out);
}

void write_qwen3(const ModelSpec& model, json& out) {
  write_qwen2(model, out);
  out["attention_bias"] = model.layers.front().attention.bias;
}

// GGUF.

void read_gguf_qwen2(const GgufSource& source, ModelSpec&, LayerSpec&) {
  if (source.integer("attention.sliding_window", 0) > 0) {
    throw_error(ErrorKind::unsupported, "{}: {} is not supported", source.file, source.key("attention.sliding_window"));
  }
}

void read_gguf_qwen3(const GgufSource& source, ModelSpec& model, LayerSpec& layer) {
  layer.attention.qk_norm = spec::QkNorm::head;
  read_gguf_qwen2(source, model, layer);
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

}  // namespace

std::span<const HfFamily> hf_qwen_families() {
  static constexpr HfFamily families[] = {
      {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2},
      {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3},
  };
  return families;
}

std::span<const GgufArchitecture> gguf_qwen_architectures() {
  static constexpr GgufArchitecture architectures[] = {
      {"qwen2", "qwen2", read_gguf_qwen2, write_gguf_qwen2},
      {"qwen3", "qwen3", read_gguf_qwen3, write_gguf_qwen3},
  };
  return architectures;
}

}  // namespace ingot::checkpoint
