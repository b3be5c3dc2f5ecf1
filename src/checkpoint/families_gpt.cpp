// gpt2 and gpt_neox.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/family_formats.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using spec::Activation;

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu: return "gelu";
    case Activation::gelu_tanh: return "gelu_new";
  }
  return "";
}

spec::ModelSpec read_gpt2(const JsonObject& config) {
  spec::ModelSpec model;
  spec::LayerSpec layer;
  spec::Attention& attention = layer.attention;
  spec::Dense mlp{.gated = false, .bias = true};
  model.family = "gpt2";
  model.vocab = config.integer("vocab_size").value_or(50257);
  model.hidden = config.integer("n_embd").value_or(768);
  attention.heads = config.integer("n_head").value_or(12);
  attention.kv_heads = attention.heads;
  attention.head_dim = read_head_dim(config, model.hidden, attention.heads, std::nullopt);
  mlp.features = config.integer("n_inner").value_or(4 * model.hidden);
  const std::optional<int64_t> positions = config.integer("n_positions");
  model.context = positions ? *positions : config.integer("n_ctx").value_or(1024);
  model.norm_epsilon = config.number("layer_norm_epsilon").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(true);
  mlp.activation = read_activation(config, "activation_function", "gelu_new");
  require_value(config, "scale_attn_by_inverse_layer_idx", false);
  require_value(config, "add_cross_attention", false);
  // reorder_and_upcast_attn requests fp32 scores, which are always used here.
  if (!config.boolean("scale_attn_weights").value_or(true)) attention.scale = 1;
  model.learned_positions = true;
  model.norm = spec::NormKind::layer;
  model.norm_bias = true;
  attention.rope.reset();
  attention.fused_qkv = true;
  attention.bias = attention.out_bias = true;
  layer.mlp = mlp;
  set_layers(config, model, config.integer("n_layer").value_or(12), layer);
  return model;
}

void write_gpt2(const spec::ModelSpec& model, json& out) {
  const spec::LayerSpec layer = common_layer(model);
  const spec::Dense& mlp = spec::dense_of(layer.mlp);
  out["n_embd"] = model.hidden;
  out["n_layer"] = model.num_layers();
  out["n_head"] = layer.attention.heads;
  out["n_inner"] = mlp.features == 4 * model.hidden ? json(nullptr) : json(mlp.features);
  out["n_positions"] = model.context;
  out["n_ctx"] = model.context;
  out["layer_norm_epsilon"] = model.norm_epsilon;
  out["activation_function"] = activation_name(mlp.activation);
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[key] = 0.0;
  out["scale_attn_weights"] = layer.attention.scale != 1;
  out["scale_attn_by_inverse_layer_idx"] = false;
  out["reorder_and_upcast_attn"] = false;
}

spec::ModelSpec read_gpt_neox(const JsonObject& config) {
  spec::ModelSpec model;
  spec::LayerSpec layer;
  spec::Attention& attention = layer.attention;
  spec::Dense mlp{.gated = false, .bias = true};
  model.family = "gpt_neox";
  model.vocab = config.integer("vocab_size").value_or(50432);
  model.hidden = config.integer("hidden_size").value_or(6144);
  attention.heads = config.integer("num_attention_heads").value_or(64);
  attention.kv_heads = attention.heads;
  attention.head_dim = read_head_dim(config, model.hidden, attention.heads, std::nullopt);
  mlp.features = config.integer("intermediate_size").value_or(24576);
  model.context = config.integer("max_position_embeddings").value_or(2048);
  model.norm_epsilon = config.number("layer_norm_eps").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(false);
  mlp.activation = read_activation(config, "hidden_act", "gelu");
  layer.parallel_residual = config.boolean("use_parallel_residual").value_or(true);
  const double rotated = read_rope(config, *attention.rope, config.number("rotary_emb_base").value_or(10000),
                                   config.number("rotary_pct").value_or(0.25));
  if (!(rotated > 0 && rotated <= 1)) {
    throw_error(ErrorKind::corrupt, "{}: rotary_pct is {}; it must be above 0 and at most 1", config.where(), rotated);
  }
  const auto rows = static_cast<int64_t>(static_cast<double>(attention.head_dim) * rotated);
  attention.rope->dim = rows == attention.head_dim ? 0 : rows;
  model.norm = spec::NormKind::layer;
  model.norm_bias = true;
  attention.fused_qkv = attention.qkv_by_head = true;
  attention.bias = config.boolean("attention_bias").value_or(true);
  attention.out_bias = attention.bias;
  layer.mlp = mlp;
  set_layers(config, model, config.integer("num_hidden_layers").value_or(44), layer);
  return model;
}

void write_gpt_neox(const spec::ModelSpec& model, json& out) {
  const spec::LayerSpec layer = common_layer(model);
  const spec::Attention& attention = layer.attention;
  const spec::Dense& mlp = spec::dense_of(layer.mlp);
  out["hidden_size"] = model.hidden;
  out["num_hidden_layers"] = model.num_layers();
  out["num_attention_heads"] = attention.heads;
  out["intermediate_size"] = mlp.features;
  out["max_position_embeddings"] = model.context;
  out["layer_norm_eps"] = model.norm_epsilon;
  out["hidden_act"] = activation_name(mlp.activation);
  out["use_parallel_residual"] = layer.parallel_residual;
  out["attention_bias"] = attention.bias;
  out["attention_dropout"] = 0.0;
  out["hidden_dropout"] = 0.0;
  const spec::Rope rope = attention.rope.value_or(spec::Rope{});
  write_rope(rope, out);
  out["rotary_emb_base"] = rope.theta;
  const auto rotated = static_cast<double>(rope.dim > 0 ? rope.dim : attention.head_dim);
  out["rotary_pct"] = rotated / static_cast<double>(attention.head_dim);
}

void read_gguf_gpt2(const GgufSource& source, spec::ModelSpec& model, spec::LayerSpec& layer) {
  model.norm = spec::NormKind::layer;
  model.norm_bias = source.has_tensor("blk.0.attn_norm.bias");
  model.learned_positions = true;
  layer.attention.rope.reset();
  layer.attention.fused_qkv = true;
  layer.attention.bias = source.has_tensor("blk.0.attn_qkv.bias");
  spec::Dense& mlp = spec::dense_of(layer.mlp);
  mlp.bias = source.has_tensor("blk.0.ffn_up.bias");
  mlp.gated = false;
  mlp.activation = Activation::gelu_tanh;
}

void read_gguf_gptneox(const GgufSource& source, spec::ModelSpec& model, spec::LayerSpec& layer) {
  read_gguf_gpt2(source, model, layer);
  model.learned_positions = false;
  layer.attention.rope = spec::Rope{};
  layer.attention.qkv_by_head = true;
  layer.parallel_residual = source.metadata.boolean(source.key("use_parallel_residual"), true);
  spec::dense_of(layer.mlp).activation = Activation::gelu;
}

void write_gguf_gpt2(const spec::ModelSpec& model, const GgufTarget& target) {
  const spec::LayerSpec layer = common_layer(model);
  target.require(spec::dense_of(layer.mlp).activation == Activation::gelu_tanh, "activation other than gelu_new");
  target.require(layer.attention.scale == 0, "unscaled attention");
}

void write_gguf_gptneox(const spec::ModelSpec& model, const GgufTarget& target) {
  const spec::LayerSpec layer = common_layer(model);
  target.require(spec::dense_of(layer.mlp).activation == Activation::gelu, "activation other than gelu");
  target.require(layer.attention.bias && layer.attention.out_bias, "attention without biases");
  target.metadata.add("gptneox.use_parallel_residual", layer.parallel_residual);
}

}  // namespace

std::span<const HfFamily> hf_gpt_families() {
  static constexpr HfFamily families[] = {
      {"gpt2", "GPT2LMHeadModel", read_gpt2, write_gpt2},
      {"gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox, write_gpt_neox},
  };
  return families;
}

std::span<const GgufArchitecture> gguf_gpt_architectures() {
  static constexpr GgufArchitecture architectures[] = {
      {"gpt2", "gpt2", read_gguf_gpt2, write_gguf_gpt2},
      {.name = "gptneox",
       .family = "gpt_neox",
       .read = read_gguf_gptneox,
       .write = write_gguf_gptneox,
       .partial_rope = true,
       .needs_head = true},
  };
  return architectures;
}

}  // namespace ingot::checkpoint
