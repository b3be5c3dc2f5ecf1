// mpt: the config.json of llm-foundry's MPTForCausalLM (github.com/mosaicml/llm-foundry,
// models/mpt/configuration_mpt.py) and of transformers' MptForCausalLM. They differ in the class name, in the key of
// the norms' epsilon and in the defaults of missing keys. The computation is llm-foundry's: transformers' class ignores
// qk_ln, logit_scale, no_bias, learned_pos_emb and norm_type.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf_family.h"

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

void read_attention(const JsonObject& attention, bool foundry, spec::ModelSpec& model) {
  const std::string type = attention.string("attn_type").value_or("multihead_attention");
  if (type == "multihead_attention") {
    model.kv_heads = model.heads;
  } else if (type == "multiquery_attention") {
    model.kv_heads = 1;
  } else if (type == "grouped_query_attention") {
    model.kv_heads = attention.required_integer("kv_n_heads");
  } else {
    refuse(attention, "attn_type");
  }
  for (const char* key : {"prefix_lm", "rope", "qk_gn", "attn_temperature_tuning"})
    refuse_others(attention, key, false);
  refuse_others(attention, "sliding_window_size", -1);
  for (const char* key : {"reuse_kv_layer_idx", "kv_dim", "attn_logit_softcapping"}) {
    if (attention.has(key)) refuse(attention, key);
  }
  model.clip_qkv = attention.number("clip_qkv").value_or(0);
  model.attention_scale = attention.number("softmax_scale").value_or(0);
  if (attention.boolean("qk_ln").value_or(false)) model.qk_norm = spec::QkNorm::all_heads;
  if (attention.boolean("alibi").value_or(!foundry)) model.positions = spec::Positions::alibi;
  model.alibi_bias_max = attention.number("alibi_bias_max").value_or(8);
}

void read_mlp(const JsonObject& config, bool foundry, spec::ModelSpec& model) {
  // transformers' class uses 4 whatever the key says.
  const double ratio = foundry ? config.number("expansion_ratio").value_or(4) : 4;
  model.ffn = static_cast<int64_t>(ratio * static_cast<double>(model.hidden));
  model.activation = spec::Activation::gelu;
  model.gated_mlp = false;
  const std::optional<JsonObject> mlp = config.object("ffn_config");
  if (!mlp) return;
  refuse_others(*mlp, "ffn_type", "mptmlp");
  model.ffn = mlp->integer("ffn_hidden_size").value_or(model.ffn);
  const std::optional<JsonObject> act = mlp->object("ffn_act_fn");
  if (!act) return;
  refuse_others(*act, "name", "gelu");
  if (act->string("approximate").value_or("none") == "tanh") model.activation = spec::Activation::gelu_tanh;
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
  model.family = "mpt";
  model.vocab = config.integer("vocab_size").value_or(50368);
  model.hidden = config.integer("d_model").value_or(2048);
  model.layers = config.integer("n_layers").value_or(24);
  model.heads = config.integer("n_heads").value_or(16);
  model.head_dim = read_head_dim(config, model, std::nullopt);
  model.context = config.integer("max_seq_len").value_or(2048);
  const std::optional<double> epsilon = config.number("norm_eps");
  model.norm_epsilon = epsilon ? *epsilon : config.number("layer_norm_epsilon").value_or(1e-5);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(true);
  model.positions = spec::Positions::learned;
  static const json no_keys = json::object();
  const std::optional<JsonObject> attention = config.object("attn_config");
  read_attention(attention ? *attention : JsonObject(no_keys, config.where()), foundry, model);
  read_mlp(config, foundry, model);
  const std::string norm = config.string("norm_type").value_or("low_precision_layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm") refuse(config, "norm_type");
  if (model.positions == spec::Positions::learned && !config.boolean("learned_pos_emb").value_or(true)) {
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
  model.norm_bias = model.attention_bias = model.attention_out_bias = model.mlp_bias = bias;
  model.fused_qkv = true;
  return model;
}

void write_mpt(const spec::ModelSpec& model, json& out) {
  // `architectures` is already transformers' MptForCausalLM. Models that it cannot compute need llm-foundry's class.
  const bool plain = model.positions == spec::Positions::alibi && model.qk_norm == spec::QkNorm::none &&
                     !model.attention_bias && model.logit_scale == 1 && model.kv_heads == model.heads &&
                     model.tied_head && model.ffn == 4 * model.hidden && model.activation == spec::Activation::gelu;
  if (!plain) out["architectures"] = json::array({"MPTForCausalLM"});
  const bool alibi = model.positions == spec::Positions::alibi;
  out["d_model"] = model.hidden;
  out["n_layers"] = model.layers;
  out["n_heads"] = model.heads;
  if (model.ffn % model.hidden == 0) {
    out["expansion_ratio"] = model.ffn / model.hidden;
  } else {
    out["expansion_ratio"] = static_cast<double>(model.ffn) / static_cast<double>(model.hidden);
  }
  out["max_seq_len"] = model.context;
  out["norm_type"] = "low_precision_layernorm";
  out["norm_eps"] = model.norm_epsilon;
  out["layer_norm_epsilon"] = model.norm_epsilon;
  out["learned_pos_emb"] = !alibi;
  out["no_bias"] = !model.attention_bias;
  out["logit_scale"] = model.logit_scale == 1 ? json(nullptr) : json(model.logit_scale);
  out["emb_pdrop"] = 0.0;
  out["resid_pdrop"] = 0.0;
  out["ffn_config"] = {{"ffn_type", "mptmlp"}, {"ffn_hidden_size", model.ffn}};
  if (model.activation == spec::Activation::gelu_tanh) {
    out["ffn_config"]["ffn_act_fn"] = {{"name", "gelu"}, {"approximate", "tanh"}};
  }
  json attention = {
      {"attn_type", model.kv_heads == model.heads ? "multihead_attention" : "grouped_query_attention"},
      {"attn_pdrop", 0},
      {"attn_impl", "torch"},
      {"clip_qkv", model.clip_qkv > 0 ? json(model.clip_qkv) : json(nullptr)},
      {"softmax_scale", model.attention_scale > 0 ? json(model.attention_scale) : json(nullptr)},
      {"prefix_lm", false},
      {"qk_ln", model.qk_norm == spec::QkNorm::all_heads},
      {"attn_uses_sequence_id", false},
      {"alibi", alibi},
      {"alibi_bias_max", model.alibi_bias_max},
  };
  if (model.alibi_bias_max == std::floor(model.alibi_bias_max)) {
    attention["alibi_bias_max"] = static_cast<int64_t>(model.alibi_bias_max);
  }
  if (model.kv_heads != model.heads) attention["kv_n_heads"] = model.kv_heads;
  out["attn_config"] = std::move(attention);
}

}  // namespace

std::span<const HfFamily> hf_mpt_families() {
  static constexpr HfFamily families[] = {{"mpt", "MptForCausalLM", read_mpt, write_mpt}};
  return families;
}

}  // namespace ingot::checkpoint
