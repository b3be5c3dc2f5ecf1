// gpt2 and gpt_neox.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf_family.h"

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
  model.family = "gpt2";
  model.vocab = config.integer("vocab_size").value_or(50257);
  model.hidden = config.integer("n_embd").value_or(768);
  model.layers = config.integer("n_layer").value_or(12);
  model.heads = config.integer("n_head").value_or(12);
  model.kv_heads = model.heads;
  model.head_dim = read_head_dim(config, model, std::nullopt);
  model.ffn = config.integer("n_inner").value_or(4 * model.hidden);
  const std::optional<int64_t> positions = config.integer("n_positions");
  model.context = positions ? *positions : config.integer("n_ctx").value_or(1024);
  model.norm_epsilon = config.number("layer_norm_epsilon").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(true);
  model.activation = read_activation(config, "activation_function", "gelu_new");
  require_value(config, "scale_attn_by_inverse_layer_idx", false);
  require_value(config, "add_cross_attention", false);
  // reorder_and_upcast_attn requests fp32 scores, which are always used here.
  if (!config.boolean("scale_attn_weights").value_or(true)) model.attention_scale = 1;
  model.positions = spec::Positions::learned;
  model.norm = spec::NormKind::layer;
  model.norm_bias = true;
  model.fused_qkv = true;
  model.attention_bias = model.attention_out_bias = model.mlp_bias = true;
  model.gated_mlp = false;
  return model;
}

void write_gpt2(const spec::ModelSpec& model, json& out) {
  out["n_embd"] = model.hidden;
  out["n_layer"] = model.layers;
  out["n_head"] = model.heads;
  out["n_inner"] = model.ffn == 4 * model.hidden ? json(nullptr) : json(model.ffn);
  out["n_positions"] = model.context;
  out["n_ctx"] = model.context;
  out["layer_norm_epsilon"] = model.norm_epsilon;
  out["activation_function"] = activation_name(model.activation);
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[key] = 0.0;
  out["scale_attn_weights"] = model.attention_scale != 1;
  out["scale_attn_by_inverse_layer_idx"] = false;
  out["reorder_and_upcast_attn"] = false;
}

spec::ModelSpec read_gpt_neox(const JsonObject& config) {
  spec::ModelSpec model;
  model.family = "gpt_neox";
  model.vocab = config.integer("vocab_size").value_or(50432);
  model.hidden = config.integer("hidden_size").value_or(6144);
  model.layers = config.integer("num_hidden_layers").value_or(44);
  model.heads = config.integer("num_attention_heads").value_or(64);
  model.kv_heads = model.heads;
  model.head_dim = read_head_dim(config, model, std::nullopt);
  model.ffn = config.integer("intermediate_size").value_or(24576);
  model.context = config.integer("max_position_embeddings").value_or(2048);
  model.norm_epsilon = config.number("layer_norm_eps").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(false);
  model.activation = read_activation(config, "hidden_act", "gelu");
  model.parallel_residual = config.boolean("use_parallel_residual").value_or(true);
  const double rotated = read_rope(config, model, config.number("rotary_emb_base").value_or(10000),
                                   config.number("rotary_pct").value_or(0.25));
  if (!(rotated > 0 && rotated <= 1)) {
    throw_error(ErrorKind::corrupt, "{}: rotary_pct is {}; it must be above 0 and at most 1", config.where(), rotated);
  }
  const auto rows = static_cast<int64_t>(static_cast<double>(model.head_dim) * rotated);
  model.rotary_dim = rows == model.head_dim ? 0 : rows;
  model.norm = spec::NormKind::layer;
  model.norm_bias = true;
  model.fused_qkv = model.qkv_by_head = true;
  model.attention_bias = config.boolean("attention_bias").value_or(true);
  model.attention_out_bias = model.attention_bias;
  model.mlp_bias = true;
  model.gated_mlp = false;
  return model;
}

void write_gpt_neox(const spec::ModelSpec& model, json& out) {
  out["hidden_size"] = model.hidden;
  out["num_hidden_layers"] = model.layers;
  out["num_attention_heads"] = model.heads;
  out["intermediate_size"] = model.ffn;
  out["max_position_embeddings"] = model.context;
  out["layer_norm_eps"] = model.norm_epsilon;
  out["hidden_act"] = activation_name(model.activation);
  out["use_parallel_residual"] = model.parallel_residual;
  out["attention_bias"] = model.attention_bias;
  out["attention_dropout"] = 0.0;
  out["hidden_dropout"] = 0.0;
  write_rope(model, out);
  out["rotary_emb_base"] = model.rope_theta;
  const auto rotated = static_cast<double>(model.rotary_dim > 0 ? model.rotary_dim : model.head_dim);
  out["rotary_pct"] = rotated / static_cast<double>(model.head_dim);
}

}  // namespace

std::span<const HfFamily> hf_gpt_families() {
  static constexpr HfFamily families[] = {
      {"gpt2", "GPT2LMHeadModel", read_gpt2, write_gpt2},
      {"gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox, write_gpt_neox},
  };
  return families;
}

}  // namespace ingot::checkpoint
