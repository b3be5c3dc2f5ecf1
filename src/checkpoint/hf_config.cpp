#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/family_formats.h"
#include "checkpoint/spec_difference.h"

namespace ingot::checkpoint {

namespace {

using nlohmann::json;
using Kind = spec::RopeScaling::Kind;

const HfFamily* find_family(const std::string& model_type) {
  for (const auto& group : {hf_llama_families(), hf_qwen_families(), hf_gpt_families(), hf_mpt_families()}) {
    for (const HfFamily& family : group) {
      if (model_type == family.model_type) return &family;
    }
  }
  return nullptr;
}

// Parses a rope_scaling or rope_parameters object.
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
    throw_hint(ErrorKind::unsupported, "supported: default, linear, llama3", "{}: rope type '{}' is not supported",
               rope.where(), type);
  }
  if (!factor || !(*factor > 0))
    throw_error(ErrorKind::corrupt, "{}: \"factor\" is missing or not above 0", rope.where());
  scaling.factor = *factor;
  return scaling;
}

json ids_value(const std::vector<int64_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids.front();
  return ids;
}

}  // namespace

void require_value(const JsonObject& config, const char* key, bool only) {
  const std::optional<bool> value = config.boolean(key);
  if (!value || *value == only) return;
  throw_error(ErrorKind::unsupported, "{}: \"{}\": {} is not supported", config.where(), key, *value);
}

void set_layers(const JsonObject& config, spec::ModelSpec& model, int64_t count, const spec::LayerSpec& layer) {
  try {
    model.layers = spec::repeated(count, layer);
  } catch (const Error& error) {
    throw Error(error.kind(), config.where() + ": " + error.message(), error.hint());
  }
}

void check_common(bool common, const spec::ModelSpec& model) {
  if (common) return;
  throw_error(ErrorKind::internal, "layers of this {} model differ in values that its config.json states once",
              model.family);
}

double read_rope(const JsonObject& config, spec::Rope& rope, double theta, double rotated) {
  rope.theta = config.number("rope_theta").value_or(theta);
  rotated = config.number("partial_rotary_factor").value_or(rotated);
  const auto scaling = config.object("rope_scaling");
  if (scaling) {
    rope.scaling = read_scaling(*scaling);
    rope.theta = scaling->number("rope_theta").value_or(rope.theta);
  }
  if (const auto parameters = config.object("rope_parameters")) {
    // Separate parameters per kind of layer are not supported: none of these families has them.
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      if (!parameters->has(kind)) continue;
      throw_error(ErrorKind::unsupported, "{}: separate rope parameters for layers of type \"{}\" are not supported",
                  parameters->where(), kind);
    }
    const spec::RopeScaling newer = read_scaling(*parameters);
    if (scaling && newer != rope.scaling) {
      throw_error(ErrorKind::corrupt, "{}: rope_scaling and rope_parameters contradict each other", config.where());
    }
    rope.scaling = newer;
    rope.theta = parameters->number("rope_theta").value_or(rope.theta);
    rotated = parameters->number("partial_rotary_factor").value_or(rotated);
  }
  return rotated;
}

void write_rope(const spec::Rope& rope, json& out) {
  const spec::RopeScaling& scaling = rope.scaling;
  out["rope_theta"] = rope.theta;
  out["rope_scaling"] = nullptr;
  if (scaling.kind == Kind::linear) {
    out["rope_scaling"] = {{"rope_type", "linear"}, {"type", "linear"}, {"factor", scaling.factor}};
  } else if (scaling.kind == Kind::llama3) {
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", scaling.factor},
                           {"low_freq_factor", scaling.low_freq_factor},
                           {"high_freq_factor", scaling.high_freq_factor},
                           {"original_max_position_embeddings", scaling.original_context}};
  }
}

spec::Activation read_activation(const JsonObject& config, const char* key, const char* fallback) {
  const std::string name = config.string(key).value_or(fallback);
  if (name == "silu" || name == "swish") return spec::Activation::silu;
  if (name == "gelu") return spec::Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return spec::Activation::gelu_tanh;
  throw_hint(ErrorKind::unsupported, "supported: silu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast",
             "{}: {} '{}' is not supported", config.where(), key, name);
}

int64_t read_head_dim(const JsonObject& config, int64_t hidden, int64_t heads, std::optional<int64_t> fallback) {
  std::optional<int64_t> head_dim = config.integer("head_dim");
  if (!head_dim) head_dim = fallback;
  if (head_dim) return *head_dim;
  if (heads < 1 || hidden % heads != 0) {
    throw_error(ErrorKind::corrupt, "{}: the hidden size {} is not divisible by {} heads, and head_dim is not given",
                config.where(), hidden, heads);
  }
  return hidden / heads;
}

HfConfig parse_hf_config(std::string_view text, const std::string& source) {
  const json document = parse_json(text, source);
  const JsonObject config(document, source);
  const std::optional<std::string> model_type = config.string("model_type");
  if (!model_type) {
    throw_hint(ErrorKind::corrupt, "set it to the model family, for instance \"llama\"",
               "{}: \"model_type\" is missing", source);
  }
  const HfFamily* family = find_family(*model_type);
  if (family == nullptr) {
    throw_hint(ErrorKind::unsupported, fmt::format("supported: {}", fmt::join(spec::families(), ", ")),
               "{}: model_type '{}' is not supported", source, *model_type);
  }
  if (const auto quantization = config.object("quantization_config")) {
    throw_hint(ErrorKind::unsupported, "use the model's unquantised weights, or a GGUF file of it",
               "{}: weights quantised by '{}' are not supported", source,
               quantization->string("quant_method").value_or("an unnamed method"));
  }
  HfConfig result;
  result.model = family->read(config);
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
  const HfFamily* family = find_family(config.model.family);
  if (family == nullptr) throw_error(ErrorKind::internal, "config.json of family '{}'", config.model.family);
  json out = {
      {"architectures", json::array({family->architecture})},
      {"model_type", family->model_type},
      {"vocab_size", config.model.vocab},
      {"initializer_range", config.model.initializer_range},
      {"tie_word_embeddings", config.model.tied_head},
      {"use_cache", true},
      {"torch_dtype", config.dtype},
      {"bos_token_id", ids_value(config.bos)},
      {"eos_token_id", ids_value(config.eos)},
  };
  family->write(config.model, out);
  std::string text = out.dump(2) + "\n";
  const std::string lost = first_difference(config.model, parse_hf_config(text, "config.json").model);
  if (!lost.empty()) {
    throw_error(ErrorKind::unsupported, "config.json of the family {} cannot state this model's {}",
                config.model.family, lost);
  }
  return text;
}

}  // namespace ingot::checkpoint
