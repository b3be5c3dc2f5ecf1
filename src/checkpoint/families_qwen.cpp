// qwen2, qwen3 and qwen3_moe.
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

// Layers named in mlp_only_layers, and those between every decoder_sparse_step-th one, have a dense MLP.
ModelSpec read_qwen3_moe(const JsonObject& config) {
  LlamaKeys read =
      read_llama_keys(config, "qwen3_moe",
                      {.vocab = 151936, .hidden = 2048, .ffn = 6144, .layers = 24, .kv_heads = 4, .context = 32768});
  read.read_bias(config);
  read.layer.attention.qk_norm = spec::QkNorm::head;
  if (config.boolean("use_sliding_window").value_or(false)) read.layer.attention.window = read_window(config, 4096);
  const std::optional<int64_t> count = config.integer("num_experts");
  spec::Experts experts{.count = count ? *count : config.integer("num_local_experts").value_or(128),
                        .per_token = config.integer("num_experts_per_tok").value_or(8),
                        .expert = read.mlp()};
  experts.expert.features = config.integer("moe_intermediate_size").value_or(768);
  const int64_t step = config.integer("decoder_sparse_step").value_or(1);
  if (step < 1) throw_error(ErrorKind::corrupt, "{}: decoder_sparse_step is {}", config.where(), step);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers");
  ModelSpec model = read.repeat(config);
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    if (!listed && experts.count != 0 && (layer + 1) % step == 0)
      model.layers[static_cast<size_t>(layer)].mlp = experts;
  }
  const bool has_experts = std::any_of(model.layers.begin(), model.layers.end(),
                                       [](const LayerSpec& layer) { return spec::experts_of(layer.mlp) != nullptr; });
  if (has_experts && !config.boolean("norm_topk_prob").value_or(false)) {
    throw_error(ErrorKind::unsupported,
                "{}: \"norm_topk_prob\": false (weights of experts that do not add up to 1) is not supported",
                config.where());
  }
  return model;
}

void write_qwen_window(const ModelSpec& model, json& out) {
  const int64_t window = window_of(model);
  out["use_sliding_window"] = window > 0;
  out["sliding_window"] = window_or_null(window);
  // The layers from max_window_layers on have the window. Other patterns are in layer_types alone.
  const auto first = std::find_if(model.layers.begin(), model.layers.end(),
                                  [](const LayerSpec& layer) { return layer.attention.window > 0; });
  const bool to_the_end =
      std::all_of(first, model.layers.end(), [](const LayerSpec& layer) { return layer.attention.window > 0; });
  out["max_window_layers"] = to_the_end ? first - model.layers.begin() : 0;
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

void write_qwen3_moe(const ModelSpec& model, json& out) {
  const LayerSpec layer = common_layer(model, [](LayerSpec& each) { each.mlp = spec::Dense{}; });
  write_llama_keys(model, layer, out);
  std::optional<spec::Experts> experts;
  std::optional<spec::Dense> dense;
  json dense_layers = json::array();
  for (int64_t i = 0; i < model.num_layers(); ++i) {
    if (const spec::Experts* layer_experts = spec::experts_of(model.layer(i).mlp)) {
      check_common(*layer_experts == experts.value_or(*layer_experts), model);
      experts = *layer_experts;
    } else {
      const spec::Dense& mlp = spec::dense_of(model.layer(i).mlp);
      check_common(mlp == dense.value_or(mlp), model);
      dense = mlp;
      dense_layers.push_back(i);
    }
  }
  out["attention_bias"] = layer.attention.bias;
  out["use_sliding_window"] = layer.attention.window > 0;
  out["sliding_window"] = window_or_null(layer.attention.window);
  out["mlp_only_layers"] = std::move(dense_layers);
  out["decoder_sparse_step"] = 1;
  out["norm_topk_prob"] = true;
  out["num_experts"] = experts ? experts->count : 0;
  out["output_router_logits"] = false;
  if (experts) {
    out["hidden_act"] = activation_name(experts->expert.activation);
    out["intermediate_size"] = experts->expert.features;  // of the dense layers, if there are any
    out["moe_intermediate_size"] = experts->expert.features;
    out["num_experts_per_tok"] = experts->per_token;
  }
  if (dense) {
    out["hidden_act"] = activation_name(dense->activation);
    out["intermediate_size"] = dense->features;
  }
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

void read_gguf_qwen3_moe(const GgufSource& source, ModelSpec& model, LayerSpec& layer) {
  read_gguf_qwen3(source, model, layer);
  layer.mlp = spec::Experts{.count = source.integer("expert_count"),
                            .per_token = source.integer("expert_used_count"),
                            .expert = {.features = source.integer("expert_feed_forward_length")}};
}

void write_gguf_qwen3(const ModelSpec& model, const GgufTarget& target) {
  const LayerSpec layer = common_layer(model, any_window);
  target.require(spec::dense_of(layer.mlp).activation == spec::Activation::silu, "activation other than silu");
  target.require(sees_all(model), "sliding window");
  target.require(!layer.attention.out_bias, "bias in the attention output");
}

void write_gguf_qwen3_moe(const ModelSpec& model, const GgufTarget& target) {
  for (const LayerSpec& layer : model.layers) {
    target.require(spec::experts_of(layer.mlp) != nullptr, "layers without experts");
  }
  write_gguf_qwen3(model, target);
  const auto& experts = std::get<spec::Experts>(model.layers.front().mlp);
  target.count("expert_count", experts.count);
  target.count("expert_used_count", experts.per_token);
  target.count("expert_feed_forward_length", experts.expert.features);
}

void write_gguf_qwen2(const ModelSpec& model, const GgufTarget& target) {
  write_gguf_qwen3(model, target);
  target.require(model.layers.front().attention.query_width() == model.hidden, "head size other than hidden / heads");
}

}  // namespace

std::span<const HfFamily> hf_qwen_families() {
  static constexpr HfFamily families[] = {
      {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2},
      {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe},
      {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3},
  };
  return families;
}

std::span<const GgufArchitecture> gguf_qwen_architectures() {
  static constexpr GgufArchitecture architectures[] = {
      {"qwen2", "qwen2", read_gguf_qwen2, write_gguf_qwen2},
      {"qwen3moe", "qwen3_moe", read_gguf_qwen3_moe, write_gguf_qwen3_moe},
      {"qwen3", "qwen3", read_gguf_qwen3, write_gguf_qwen3},
  };
  return architectures;
}

}  // namespace ingot::checkpoint
