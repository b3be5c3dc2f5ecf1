#include "checkpoint/hf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json_object.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using Kind = spec::RopeScaling::Kind;

// The object of a rope_scaling or rope_parameters.
spec::RopeScaling read_scaling(const JsonObject& rope) {
  spec::RopeScaling scaling;
  const std::optional<std::string> named = rope.string("rope_type");
  const std::string type = named ? *named : rope.string("type").value_or("default");
  if (type == "default" || type == "none") return scaling;
  const std::optional<double> factor = rope.number("factor");
  if (type == "linear") {
    scaling.kind = Kind::linear;
  } else if (type == "llama3") {
    scaling.kind = Kind::llama3;
    for (const char* key : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!rope.has(key)) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing", rope.where(), key);
    }
    scaling.low_freq_factor = rope.number("low_freq_factor").value();
    scaling.high_freq_factor = rope.number("high_freq_factor").value();
    scaling.original_context = rope.required_integer("original_max_position_embeddings");
    if (!(scaling.high_freq_factor > scaling.low_freq_factor && scaling.low_freq_factor > 0)) {
      throw_error(ErrorKind::corrupt, "{}: high_freq_factor {} is not above low_freq_factor {}", rope.where(),
                  scaling.high_freq_factor, scaling.low_freq_factor);
    }
  } else {
    throw_hint(ErrorKind::unsupported, "Ingot has: default, linear, llama3", "{}: rope type '{}' is not supported",
               rope.where(), type);
  }
  if (!factor || !(*factor > 0))
    throw_error(ErrorKind::corrupt, "{}: \"factor\" is missing or not above 0", rope.where());
  scaling.factor = *factor;
  return scaling;
}

void read_rope(const JsonObject& config, spec::ModelSpec& model) {
  model.rope_theta = config.number("rope_theta").value_or(10000.0);
  double rotated = config.number("partial_rotary_factor").value_or(1.0);
  if (const auto scaling = config.object("rope_scaling")) {
    model.rope_scaling = read_scaling(*scaling);
    model.rope_theta = scaling->number("rope_theta").value_or(model.rope_theta);
  }
  if (const auto parameters = config.object("rope_parameters")) {
    const spec::RopeScaling scaling = read_scaling(*parameters);
    if (config.has("rope_scaling") && scaling != model.rope_scaling) {
      throw_error(ErrorKind::corrupt, "{}: rope_scaling and rope_parameters contradict each other", config.where());
    }
    model.rope_scaling = scaling;
    model.rope_theta = parameters->number("rope_theta").value_or(model.rope_theta);
    rotated = parameters->number("partial_rotary_factor").value_or(rotated);
  }
  if (rotated != 1.0) {
    throw_error(ErrorKind::unsupported, "{}: rotary positions on a part of each head (partial_rotary_factor {})",
                config.where(), rotated);
  }
}

spec::ModelSpec read_llama(const JsonObject& config) {
  spec::ModelSpec model;
  model.family = "llama";
  model.vocab = config.integer("vocab_size").value_or(32000);
  model.hidden = config.integer("hidden_size").value_or(4096);
  model.ffn = config.integer("intermediate_size").value_or(11008);
  model.layers = config.integer("num_hidden_layers").value_or(32);
  model.heads = config.integer("num_attention_heads").value_or(32);
  model.kv_heads = config.integer("num_key_value_heads").value_or(model.heads);
  const std::optional<int64_t> head_dim = config.integer("head_dim");
  if (!head_dim && (model.heads < 1 || model.hidden % model.heads != 0)) {
    throw_error(ErrorKind::corrupt, "{}: hidden_size {} does not divide into {} heads, and head_dim is not given",
                config.where(), model.hidden, model.heads);
  }
  model.head_dim = head_dim ? *head_dim : model.hidden / model.heads;
  model.context = config.integer("max_position_embeddings").value_or(2048);
  model.norm_epsilon = config.number("rms_norm_eps").value_or(1e-6);
  model.initializer_range = config.number("initializer_range").value_or(0.02);
  model.tied_head = config.boolean("tie_word_embeddings").value_or(false);
  model.attention_bias = config.boolean("attention_bias").value_or(false);
  model.attention_out_bias = model.attention_bias;
  model.mlp_bias = config.boolean("mlp_bias").value_or(false);
  const std::string activation = config.string("hidden_act").value_or("silu");
  if (activation != "silu") {
    throw_hint(ErrorKind::unsupported, "Ingot has: silu", "{}: hidden_act '{}' is not supported", config.where(),
               activation);
  }
  read_rope(config, model);
  return model;
}

json ids_value(const std::vector<int64_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids.front();
  return ids;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& source) {
  const json document = parse_json(text, source);
  const JsonObject config(document, source);
  const std::optional<std::string> model_type = config.string("model_type");
  if (!model_type) {
    throw_hint(ErrorKind::corrupt, "a config.json of transformers names the family, for instance \"llama\"",
               "{}: \"model_type\" is missing", source);
  }
  const auto families = spec::families();
  if (std::find(families.begin(), families.end(), *model_type) == families.end()) {
    std::string known;
    for (std::string_view family : families) known += (known.empty() ? "" : ", ") + std::string(family);
    throw_hint(ErrorKind::unsupported, "Ingot has: " + known, "{}: model_type '{}' is not supported", source,
               *model_type);
  }
  if (const auto quantization = config.object("quantization_config")) {
    throw_hint(ErrorKind::unsupported, "take the model's unquantised weights, or a GGUF file of it",
               "{}: weights quantised by '{}' are not supported", source,
               quantization->string("quant_method").value_or("an unnamed method"));
  }
  HfConfig result;
  result.model = read_llama(config);
  try {
    spec::check(result.model);
  } catch (const Error& error) {
    throw Error(error.kind(), source + ": " + error.message(), error.hint());
  }
  const std::optional<std::string> dtype = config.string("dtype");
  result.dtype = dtype ? *dtype : config.string("torch_dtype").value_or("");
  result.bos = config.integers("bos_token_id");
  result.eos = config.integers("eos_token_id");
  return result;
}

std::string write_hf_config(const HfConfig& config) {
  const spec::ModelSpec& model = config.model;
  json out = {
      {"architectures", json::array({"LlamaForCausalLM"})},
      {"model_type", model.family},
      {"vocab_size", model.vocab},
      {"hidden_size", model.hidden},
      {"intermediate_size", model.ffn},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", model.context},
      {"rms_norm_eps", model.norm_epsilon},
      {"initializer_range", model.initializer_range},
      {"tie_word_embeddings", model.tied_head},
      {"attention_bias", model.attention_bias},
      {"mlp_bias", model.mlp_bias},
      {"attention_dropout", 0.0},
      {"pretraining_tp", 1},
      {"use_cache", true},
      {"rope_theta", model.rope_theta},
      {"rope_scaling", nullptr},
      {"torch_dtype", config.dtype},
      {"bos_token_id", ids_value(config.bos)},
      {"eos_token_id", ids_value(config.eos)},
  };
  const spec::RopeScaling& scaling = model.rope_scaling;
  if (scaling.kind == Kind::linear) {
    out["rope_scaling"] = {{"rope_type", "linear"}, {"type", "linear"}, {"factor", scaling.factor}};
  } else if (scaling.kind == Kind::llama3) {
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", scaling.factor},
                           {"low_freq_factor", scaling.low_freq_factor},
                           {"high_freq_factor", scaling.high_freq_factor},
                           {"original_max_position_embeddings", scaling.original_context}};
  }
  return out.dump(2) + "\n";
}

}  // namespace ingot::checkpoint
