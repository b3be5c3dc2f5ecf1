// llama and the families with the same keys.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf_family.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using spec::WindowPattern;

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
};

spec::ModelSpec read_common(const JsonObject& config, const char* family, const Defaults& defaults) {
  spec::ModelSpec model;
  model.family = family;
  model.vocab = config.integer("vocab_size").value_or(defaults.vocab);
  model.hidden = config.integer("hidden_size").value_or(defaults.hidden);
  model.ffn = config.integer("intermediate_size").value_or(defaults.ffn);
  model.layers = config.integer("num_hidden_layers").value_or(defaults.layers);
  model.heads = config.integer("num_attention_heads").value_or(defaults.heads);
  // null differs from a missing key: it means as many as heads.
  const std::optional<int64_t> kv_heads = config.is_null("num_key_value_heads") ? std::nullopt : defaults.kv_heads;
  model.kv_heads = config.integer("num_key_value_heads").value_or(kv_heads.value_or(model.heads));
  model.head_dim = read_head_dim(config, model, config.is_null("head_dim") ? std::nullopt : defaults.head_dim);
  model.context = config.integer("max_position_embeddings").value_or(defaults.context);
  model.norm_epsilon = config.number("rms_norm_eps").value_or(defaults.epsilon);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(defaults.tied);
  const double rotated = read_rope(config, model, defaults.theta, 1.0);
  if (rotated != 1.0) {
    throw_error(ErrorKind::unsupported,
                "{}: rotary embedding of only a part of each head (partial_rotary_factor {}) is not supported",
                config.where(), rotated);
  }
  return model;
}

void read_silu(const JsonObject& config, spec::ModelSpec& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
}

void read_attention_bias(const JsonObject& config, spec::ModelSpec& model) {
  model.attention_bias = config.boolean("attention_bias").value_or(false);
  model.attention_out_bias = model.attention_bias;
}

spec::ModelSpec read_llama(const JsonObject& config) {
  spec::ModelSpec model = read_common(config, "llama", {});
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias").value_or(false);
  read_silu(config, model);
  return model;
}

// Sets the sliding-window layers from flags: all, none, or the even layers. Errors: unsupported, naming the key, for
// other patterns.
void set_window(const JsonObject& config, const char* key, spec::ModelSpec& model, int64_t window,
                const std::vector<bool>& slides) {
  size_t sliding = 0;
  bool even = true;
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    sliding += slides[layer] ? 1 : 0;
    even = even && slides[layer] == (layer % 2 == 0);
  }
  model.window = sliding == 0 ? 0 : window;
  model.window_pattern = WindowPattern::every;
  if (sliding == 0 || sliding == slides.size()) return;
  if (!even) {
    throw_hint(ErrorKind::unsupported, "supported: a window in every layer, in every second one, or in none",
               "{}: \"{}\": a sliding window in {} of {} layers is not supported", config.where(), key, sliding,
               slides.size());
  }
  model.window_pattern = WindowPattern::even;
}

// Reads layer_types, if the file has it.
bool read_layer_types(const JsonObject& config, spec::ModelSpec& model, int64_t window) {
  if (!config.has("layer_types")) return false;
  const std::vector<std::string> types = config.strings("layer_types");
  if (types.size() != static_cast<size_t>(model.layers)) {
    throw_error(ErrorKind::corrupt, "{}: \"layer_types\" has {} entries for {} layers", config.where(), types.size(),
                model.layers);
  }
  std::vector<bool> slides;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      throw_hint(ErrorKind::unsupported, "supported: full_attention, sliding_attention",
                 "{}: \"layer_types\": '{}' is not supported", config.where(), type);
    }
    slides.push_back(type == "sliding_attention");
  }
  set_window(config, "layer_types", model, window, slides);
  return true;
}

spec::ModelSpec read_mistral(const JsonObject& config) {
  spec::ModelSpec model = read_common(config, "mistral", {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32});
  const int64_t missing = config.is_null("sliding_window") ? 0 : 4096;
  model.window = config.integer("sliding_window").value_or(missing);
  if (config.has("layer_types")) read_layer_types(config, model, model.window);
  read_silu(config, model);
  return model;
}

// The sliding window of Qwen models: in layers from max_window_layers on, and only with use_sliding_window.
void read_qwen_window(const JsonObject& config, spec::ModelSpec& model) {
  const bool used = config.boolean("use_sliding_window").value_or(false);
  const int64_t missing = config.is_null("sliding_window") ? 0 : 4096;
  const int64_t window = used ? config.integer("sliding_window").value_or(missing) : 0;
  if (read_layer_types(config, model, window)) return;
  if (window == 0) return;
  const int64_t full = config.integer("max_window_layers").value_or(28);
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < model.layers; ++layer) slides.push_back(layer >= full);
  set_window(config, "max_window_layers", model, window, slides);
}

spec::ModelSpec read_qwen2(const JsonObject& config) {
  spec::ModelSpec model =
      read_common(config, "qwen2", {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .context = 32768});
  model.attention_bias = true;
  read_qwen_window(config, model);
  read_silu(config, model);
  return model;
}

spec::ModelSpec read_qwen3(const JsonObject& config) {
  spec::ModelSpec model =
      read_common(config, "qwen3", {.vocab = 151936, .ffn = 22016, .kv_heads = 32, .head_dim = 128, .context = 32768});
  read_attention_bias(config, model);
  model.qk_norm = spec::QkNorm::head;
  read_qwen_window(config, model);
  read_silu(config, model);
  return model;
}

spec::ModelSpec read_gemma2(const JsonObject& config) {
  spec::ModelSpec model = read_common(config, "gemma2",
                                      {.vocab = 256000,
                                       .hidden = 2304,
                                       .ffn = 9216,
                                       .layers = 26,
                                       .heads = 8,
                                       .kv_heads = 4,
                                       .head_dim = 256,
                                       .context = 8192,
                                       .tied = true});
  require_value(config, "use_bidirectional_attention", false);
  read_attention_bias(config, model);
  model.activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  model.norm_weight_offset = 1;
  model.post_norms = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  const double scalar = config.number("query_pre_attn_scalar").value_or(256);
  if (!(scalar > 0))
    throw_error(ErrorKind::corrupt, "{}: query_pre_attn_scalar is {}; it must be above 0", config.where(), scalar);
  model.attention_scale = 1 / std::sqrt(scalar);
  const auto cap = [&](const char* key, double missing) {
    return config.number(key).value_or(config.is_null(key) ? 0 : missing);
  };
  model.attention_softcap = cap("attn_logit_softcapping", 50);
  model.final_softcap = cap("final_logit_softcapping", 30);
  model.window = config.integer("sliding_window").value_or(config.is_null("sliding_window") ? 0 : 4096);
  model.window_pattern = WindowPattern::even;
  read_layer_types(config, model, model.window);
  return model;
}

spec::ModelSpec read_mixtral(const JsonObject& config) {
  spec::ModelSpec model = read_common(
      config, "mixtral", {.ffn = 14336, .kv_heads = 8, .context = 4096 * 32, .epsilon = 1e-5, .theta = 1e6});
  model.experts = config.integer("num_local_experts").value_or(8);
  model.experts_per_token = config.integer("num_experts_per_tok").value_or(2);
  model.window = config.integer("sliding_window").value_or(0);
  read_silu(config, model);
  return model;
}

const char* activation_name(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::silu: return "silu";
    case spec::Activation::gelu: return "gelu";
    case spec::Activation::gelu_tanh: return "gelu_pytorch_tanh";
  }
  return "";
}

void write_common(const spec::ModelSpec& model, json& out) {
  out["hidden_size"] = model.hidden;
  out["intermediate_size"] = model.ffn;
  out["num_hidden_layers"] = model.layers;
  out["num_attention_heads"] = model.heads;
  out["num_key_value_heads"] = model.kv_heads;
  out["head_dim"] = model.head_dim;
  out["hidden_act"] = activation_name(model.activation);
  out["max_position_embeddings"] = model.context;
  out["rms_norm_eps"] = model.norm_epsilon;
  out["attention_dropout"] = 0.0;
  write_rope(model, out);
}

json window_or_null(const spec::ModelSpec& model) { return model.window > 0 ? json(model.window) : json(nullptr); }

void write_llama(const spec::ModelSpec& model, json& out) {
  write_common(model, out);
  out["attention_bias"] = model.attention_bias;
  out["mlp_bias"] = model.mlp_bias;
  out["pretraining_tp"] = 1;
}

void write_mistral(const spec::ModelSpec& model, json& out) {
  write_common(model, out);
  out["sliding_window"] = window_or_null(model);
}

void write_layer_types(const spec::ModelSpec& model, json& out) {
  json types = json::array();
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    types.push_back(model.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
}

void write_qwen(const spec::ModelSpec& model, json& out) {
  write_common(model, out);
  out["use_sliding_window"] = model.window > 0;
  out["sliding_window"] = window_or_null(model);
  out["max_window_layers"] = model.window > 0 ? 0 : model.layers;
  if (model.window > 0) write_layer_types(model, out);
  if (model.family == "qwen3") out["attention_bias"] = model.attention_bias;
}

void write_gemma2(const spec::ModelSpec& model, json& out) {
  write_common(model, out);
  out["hidden_activation"] = activation_name(model.activation);
  out["attention_bias"] = model.attention_bias;
  const double scale =
      model.attention_scale > 0 ? model.attention_scale : 1 / std::sqrt(static_cast<double>(model.head_dim));
  out["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
  const auto cap = [](double value) { return value > 0 ? json(value) : json(nullptr); };
  out["attn_logit_softcapping"] = cap(model.attention_softcap);
  out["final_logit_softcapping"] = cap(model.final_softcap);
  out["sliding_window"] = window_or_null(model);
  write_layer_types(model, out);
}

void write_mixtral(const spec::ModelSpec& model, json& out) {
  write_common(model, out);
  out["sliding_window"] = window_or_null(model);
  out["num_local_experts"] = model.experts;
  out["num_experts_per_tok"] = model.experts_per_token;
  out["output_router_logits"] = false;
}

}  // namespace

std::span<const HfFamily> hf_llama_families() {
  static constexpr HfFamily families[] = {
      {"llama", "LlamaForCausalLM", read_llama, write_llama},
      {"mistral", "MistralForCausalLM", read_mistral, write_mistral},
      {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen},
      {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen},
      {"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2},
      {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral},
  };
  return families;
}

}  // namespace ingot::checkpoint
