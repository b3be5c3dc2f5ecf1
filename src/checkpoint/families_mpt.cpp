// mpt: the config.json of llm-foundry's MPTForCausalLM (github.com/mosaicml/llm-foundry,
// models/mpt/configuration_mpt.py) and of transformers' MptForCausalLM. They differ in the class name, in the key of
// the norms' epsilon and in the defaults of missing keys. The computation is llm-foundry's: transformers' class ignores
// qk_ln, logit_scale, no_bias, learned_pos_emb and norm_type.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/family_formats.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const JsonObject& object, const char* key) {
  throw_error(ErrorKind::unsupported, "{}: \"{}\": {} is not supported", object.where(), key, object.find(key)->dump());
}

// Rejects a key with a value other than `only`; a missing or null key means `only`.
void refuse_others(const JsonObject& object, const char* key, const json& only) {
  const json* value = object.find(key);
  if (value != nullptr && *value != only) refuse(object, key);
}

void read_attention(const JsonObject& attention, bool foundry, spec::Attention& read) {
  const std::string type = attention.string("attn_type").value_or("multihead_attention");
  if (type == "multihead_attention") {
    read.kv_heads = read.heads;
  } else if (type == "multiquery_attention") {
    read.kv_heads = 1;
  } else if (type == "grouped_query_attention") {
    read.kv_heads = attention.required_integer("kv_n_heads");
  } else {
    refuse(attention, "attn_type");
  }
  for (const char* key : {"prefix_lm", "rope", "qk_gn", "attn_temperature_tuning"})
    refuse_others(attention, key, false);
  refuse_others(attention, "sliding_window_size", -1);
  for (const char* key : {"reuse_kv_layer_idx", "kv_dim", "attn_logit_softcapping"}) {
    if (attention.has(key)) refuse(attention, key);
  }
  read.clip_qkv = attention.number("clip_qkv").value_or(0);
  read.scale = attention.number("softmax_scale").value_or(0);
  if (attention.boolean("qk_ln").value_or(false)) read.qk_norm = spec::QkNorm::all_heads;
  read.alibi = attention.boolean("alibi").value_or(!foundry);
  read.alibi_bias_max = attention.number("alibi_bias_max").value_or(8);
}

spec::Dense read_mlp(const JsonObject& config, bool foundry, int64_t hidden) {
  // transformers' class uses 4 whatever the key says.
  const double ratio = foundry ? config.number("expansion_ratio").value_or(4) : 4;
  spec::Dense read{.features = static_cast<int64_t>(ratio * static_cast<double>(hidden)),
                   .activation = spec::Activation::gelu,
                   .gated = false};
  const std::optional<JsonObject> mlp = config.object("ffn_config");
  if (!mlp) return read;
  refuse_others(*mlp, "ffn_type", "mptmlp");
  read.features = mlp->integer("ffn_hidden_size").value_or(read.features);
  const std::optional<JsonObject> act = mlp->object("ffn_act_fn");
  if (!act) return read;
  refuse_others(*act, "name", "gelu");
  if (act->string("approximate").value_or("none") == "tanh") read.activation = spec::Activation::gelu_tanh;
  return read;
}

double read_logit_scale(const JsonObject& config, const spec::ModelSpec& model) {
  const json* scale = config.find("logit_scale");
  if (scale == nullptr) return 1;
  if (scale->is_number()) return scale->get<double>();
  if (*scale == "inv_sqrt_d_model") return 1 / std::sqrt(static_cast<double>(model.hidden));
  refuse(config, "logit_scale");
}

spec::ModelSpec read_mpt(const JsonObject& config) {
  const std::vector<std::string> architectures = config.strings("architectures");
  const bool foundry = !architectures.empty() && architectures.front() == "MPTForCausalLM";
  spec::ModelSpec model;
  spec::LayerSpec layer;
  spec::Attention& attention = layer.attention;
  model.family = "mpt";
  model.vocab = config.integer("vocab_size").value_or(50368);
  model.hidden = config.integer("d_model").value_or(2048);
  attention.heads = config.integer("n_heads").value_or(16);
  attention.head_dim = read_head_dim(config, model.hidden, attention.heads, std::nullopt);
  model.context = config.integer("max_seq_len").value_or(2048);
  const std::optional<double> epsilon = config.number("norm_eps");
  model.norm_epsilon = epsilon ? *epsilon : config.number("layer_norm_epsilon").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(true);
  static const json no_keys = json::object();
  const std::optional<JsonObject> keys = config.object("attn_config");
  read_attention(keys ? *keys : JsonObject(no_keys, config.where()), foundry, attention);
  model.learned_positions = !attention.alibi;
  spec::Dense mlp = read_mlp(config, foundry, model.hidden);
  const std::string norm = config.string("norm_type").value_or("low_precision_layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm") refuse(config, "norm_type");
  if (model.learned_positions && !config.boolean("learned_pos_emb").value_or(true)) {
    throw_error(ErrorKind::unsupported,
                "{}: a model without position encoding (learned_pos_emb and alibi are false) is not supported",
                config.where());
  }
  refuse_others(config, "embedding_fraction", 1);
  for (const char* key : {"block_overrides", "final_logit_softcapping"}) {
    if (config.has(key)) refuse(config, key);
  }
  model.logit_scale = read_logit_scale(config, model);
  const bool bias = !config.boolean("no_bias").value_or(!foundry);
  model.norm = spec::NormKind::layer;
  model.norm_bias = attention.bias = attention.out_bias = mlp.bias = bias;
  attention.rope.reset();
  attention.fused_qkv = true;
  layer.mlp = mlp;
  set_layers(config, model, config.integer("n_layers").value_or(24), layer);
  return model;
}

void write_mpt(const spec::ModelSpec& model, json& out) {
  const spec::LayerSpec layer = common_layer(model);
  const spec::Attention& attention = layer.attention;
  const spec::Dense& mlp = spec::dense_of(layer.mlp);
  // `architectures` is already transformers' MptForCausalLM. Models that it cannot compute need llm-foundry's class.
  const bool plain = attention.alibi && attention.qk_norm == spec::QkNorm::none && !attention.bias &&
                     model.logit_scale == 1 && attention.kv_heads == attention.heads && model.tied_head &&
                     mlp.features == 4 * model.hidden && mlp.activation == spec::Activation::gelu;
  if (!plain) out["architectures"] = json::array({"MPTForCausalLM"});
  out["d_model"] = model.hidden;
  out["n_layers"] = model.num_layers();
  out["n_heads"] = attention.heads;
  if (mlp.features % model.hidden == 0) {
    out["expansion_ratio"] = mlp.features / model.hidden;
  } else {
    out["expansion_ratio"] = static_cast<double>(mlp.features) / static_cast<double>(model.hidden);
  }
  out["max_seq_len"] = model.context;
  out["norm_type"] = "low_precision_layernorm";
  out["norm_eps"] = model.norm_epsilon;
  out["layer_norm_epsilon"] = model.norm_epsilon;
  out["learned_pos_emb"] = !attention.alibi;
  out["no_bias"] = !attention.bias;
  out["logit_scale"] = model.logit_scale == 1 ? json(nullptr) : json(model.logit_scale);
  out["emb_pdrop"] = 0.0;
  out["resid_pdrop"] = 0.0;
  out["ffn_config"] = {{"ffn_type", "mptmlp"}, {"ffn_hidden_size", mlp.features}};
  if (mlp.activation == spec::Activation::gelu_tanh) {
    out["ffn_config"]["ffn_act_fn"] = {{"name", "gelu"}, {"approximate", "tanh"}};
  }
  json keys = {
      {"attn_type", attention.kv_heads == attention.heads ? "multihead_attention" : "grouped_query_attention"},
      {"attn_pdrop", 0},
      {"attn_impl", "torch"},
      {"clip_qkv", attention.clip_qkv > 0 ? json(attention.clip_qkv) : json(nullptr)},
      {"softmax_scale", attention.scale > 0 ? json(attention.scale) : json(nullptr)},
      {"prefix_lm", false},
      {"qk_ln", attention.qk_norm == spec::QkNorm::all_heads},
      {"attn_uses_sequence_id", false},
      {"alibi", attention.alibi},
      {"alibi_bias_max", attention.alibi_bias_max},
  };
  if (attention.alibi_bias_max == std::floor(attention.alibi_bias_max)) {
    keys["alibi_bias_max"] = static_cast<int64_t>(attention.alibi_bias_max);
  }
  if (attention.kv_heads != attention.heads) keys["kv_n_heads"] = attention.kv_heads;
  out["attn_config"] = std::move(keys);
}

void read_gguf_mpt(const GgufSource& source, spec::ModelSpec& model, spec::LayerSpec& layer) {
  spec::Attention& attention = layer.attention;
  model.norm = spec::NormKind::layer;
  model.norm_bias = source.has_tensor("blk.0.attn_norm.bias");
  attention.rope.reset();
  attention.fused_qkv = true;
  attention.bias = source.has_tensor("blk.0.attn_qkv.bias");
  attention.clip_qkv = source.real("attention.clamp_kqv", 0);
  const double bias = source.real("attention.max_alibi_bias", 0);
  attention.alibi = bias > 0;
  if (attention.alibi) attention.alibi_bias_max = bias;
  model.learned_positions = !attention.alibi;
  if (source.has_tensor("blk.0.attn_q_norm.weight")) attention.qk_norm = spec::QkNorm::all_heads;
  spec::Dense& mlp = spec::dense_of(layer.mlp);
  mlp.bias = source.has_tensor("blk.0.ffn_up.bias");
  mlp.gated = false;
  mlp.activation = spec::Activation::gelu;
}

void write_gguf_mpt(const spec::ModelSpec& model, const GgufTarget& target) {
  const spec::LayerSpec layer = common_layer(model);
  const spec::Attention& attention = layer.attention;
  target.require(spec::dense_of(layer.mlp).activation == spec::Activation::gelu, "activation other than gelu");
  target.require(model.logit_scale == 1, "logit_scale");
  target.require(attention.scale == 0, "softmax_scale");
  target.require(attention.qk_norm == spec::QkNorm::none || attention.kv_heads == attention.heads,
                 "key norm with fewer key heads than query heads");
  if (attention.clip_qkv > 0) target.real("attention.clamp_kqv", attention.clip_qkv);
  target.real("attention.max_alibi_bias", attention.alibi ? attention.alibi_bias_max : 0);
}

}  // namespace

std::span<const HfFamily> hf_mpt_families() {
  static constexpr HfFamily families[] = {{"mpt", "MptForCausalLM", read_mpt, write_mpt}};
  return families;
}

std::span<const GgufArchitecture> gguf_mpt_architectures() {
  static constexpr GgufArchitecture architectures[] = {{"mpt", "mpt", read_gguf_mpt, write_gguf_mpt}};
  return architectures;
}

}  // namespace ingot::checkpoint
