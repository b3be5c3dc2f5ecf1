#include "checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

namespace {

using formats::GgufMetadata;
using Kind = spec::RopeScaling::Kind;

// Some converters compute divisors in fp32; distinct candidates differ by far more than this.
constexpr double divisor_tolerance = 1e-5;

double shortest(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  double result = value;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

double wavelength(const spec::ModelSpec& model, size_t pair) {
  const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim);
  return 2 * std::numbers::pi * std::pow(model.rope_theta, exponent);
}

std::vector<double> divisors_of(const spec::ModelSpec& model) {
  const spec::RopeScaling& scaling = model.rope_scaling;
  std::vector<double> divisors;
  for (size_t pair = 0; pair < static_cast<size_t>(model.head_dim / 2); ++pair) {
    const double turns = static_cast<double>(scaling.original_context) / wavelength(model, pair);
    if (turns > scaling.high_freq_factor) {
      divisors.push_back(1);
    } else if (turns < scaling.low_freq_factor) {
      divisors.push_back(scaling.factor);
    } else {
      const double smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      divisors.push_back(1 / ((1 - smooth) / scaling.factor + smooth));
    }
  }
  return divisors;
}

// Finds the rope scaling whose divisors are `stored`, assuming Llama 3's low_freq_factor 1 and high_freq_factor 4: the
// factor is the largest divisor, and a divisor in the interpolated range determines the original context.
spec::RopeScaling scaling_of(const spec::ModelSpec& model, const std::vector<float>& stored, const std::string& file) {
  spec::ModelSpec candidate = model;
  spec::RopeScaling& scaling = candidate.rope_scaling;
  scaling.kind = Kind::llama3;
  scaling.factor = shortest(*std::max_element(stored.begin(), stored.end()));
  for (size_t pair = 0; pair < stored.size(); ++pair) {
    const double inverse = 1.0 / static_cast<double>(stored[pair]);
    const double smooth = (inverse - 1 / scaling.factor) / (1 - 1 / scaling.factor);
    if (!(smooth > 0.01 && smooth < 0.99)) continue;
    const double turns = scaling.low_freq_factor + smooth * (scaling.high_freq_factor - scaling.low_freq_factor);
    scaling.original_context = static_cast<int64_t>(std::llround(turns * wavelength(model, pair)));
    break;
  }
  const std::vector<double> expected = divisors_of(candidate);
  for (size_t pair = 0; pair < stored.size(); ++pair) {
    if (std::abs(static_cast<double>(stored[pair]) - expected[pair]) <= divisor_tolerance * expected[pair]) continue;
    throw_hint(ErrorKind::unsupported, "supported: none, linear, and Llama 3's scaling",
               "{}: the frequency divisors in tensor 'rope_freqs.weight' are not those of Llama 3 (element {} is {})",
               file, pair, stored[pair]);
  }
  return scaling;
}

// The contents of a file of one architecture.
struct Source {
  const TensorStore& store;
  const GgufMetadata& metadata;
  std::string file;
  std::string architecture;

  std::string key(const char* name) const { return architecture + "." + name; }
  int64_t integer(const char* name) const { return metadata.integer(key(name)); }
  int64_t integer(const char* name, int64_t missing) const { return metadata.integer(key(name), missing); }
  double real(const char* name) const { return shortest(metadata.real(key(name))); }
  double real(const char* name, double missing) const { return shortest(metadata.real(key(name), missing)); }
  bool has_tensor(const char* name) const { return store.find(name) != nullptr; }
};

void read_divisors(const Source& source, spec::ModelSpec& model) {
  const StoredTensor* divisors = source.store.find("rope_freqs.weight");
  if (divisors == nullptr) return;
  if (divisors->storage != Storage::f32 || divisors->shape != std::vector<int64_t>{model.head_dim / 2}) {
    throw_error(ErrorKind::corrupt, "{}: tensor 'rope_freqs.weight' is {}, expected F32 [{}]", source.file,
                divisors->text(), model.head_dim / 2);
  }
  std::vector<float> stored(static_cast<size_t>(model.head_dim / 2));
  decode_row(Storage::f32, divisors->bytes.data(), model.head_dim / 2, stored.data());
  if (std::all_of(stored.begin(), stored.end(), [](float divisor) { return divisor == 1.0F; })) return;
  if (model.rope_scaling.kind != Kind::none) {
    throw_error(ErrorKind::unsupported,
                "{}: has both linear rope scaling and 'rope_freqs.weight', which is not supported", source.file);
  }
  model.rope_scaling = scaling_of(model, stored, source.file);
}

void read_rope(const Source& source, spec::ModelSpec& model) {
  model.rope_theta = source.real("rope.freq_base", 10000.0);
  const std::string type = source.metadata.text(source.key("rope.scaling.type"), "none");
  double factor = source.real("rope.scale_linear", 1.0);  // files of 2023
  if (type == "linear") {
    factor = source.real("rope.scaling.factor");
  } else if (type != "none") {
    throw_hint(ErrorKind::unsupported, "supported: none, linear, and Llama 3's scaling",
               "{}: rope scaling '{}' is not supported", source.file, type);
  }
  if (!(factor > 0))
    throw_error(ErrorKind::corrupt, "{}: the rope scaling factor is {}; it must be above 0", source.file, factor);
  if (factor != 1.0) model.rope_scaling = {.kind = Kind::linear, .factor = factor};
  const int64_t rotated = source.integer("rope.dimension_count", model.head_dim);
  if (rotated != model.head_dim && model.family != "gpt_neox") {
    throw_error(ErrorKind::unsupported, "{}: rotary embedding of only {} of {} elements of each head is not supported",
                source.file, rotated, model.head_dim);
  }
  model.rotary_dim = rotated == model.head_dim ? 0 : rotated;
  read_divisors(source, model);
}

void read_llama(const Source& source, spec::ModelSpec& model) {
  model.experts = source.integer("expert_count", 0);
  model.window = source.integer("attention.sliding_window", 0);
  if (model.window > 0) model.family = "mistral";
  if (model.experts == 0) return;
  model.family = "mixtral";
  model.experts_per_token = source.integer("expert_used_count");
}

void read_qwen(const Source& source, spec::ModelSpec& model) {
  if (model.family == "qwen3") model.qk_norm = spec::QkNorm::head;
  if (source.integer("attention.sliding_window", 0) > 0) {
    throw_error(ErrorKind::unsupported, "{}: {} is not supported", source.file, source.key("attention.sliding_window"));
  }
}

double gemma2_scale(const spec::ModelSpec& model) {
  // llama.cpp recognises the 27B model by its number of layers; it has another query scale.
  const int64_t scalar = model.layers == 46 ? model.hidden / model.heads : model.head_dim;
  return 1 / std::sqrt(static_cast<double>(scalar));
}

void read_gemma2(const Source& source, spec::ModelSpec& model) {
  model.activation = spec::Activation::gelu_tanh;
  model.norm_weight_offset = 1;
  model.post_norms = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  model.attention_scale = model.heads > 0 ? gemma2_scale(model) : 0;
  model.attention_softcap = source.real("attn_logit_softcapping", 50);
  model.final_softcap = source.real("final_logit_softcapping", 30);
  model.window = source.integer("attention.sliding_window", 4096);
  model.window_pattern = spec::WindowPattern::even;
  model.tied_head = true;
}

// The common part of gpt2, gpt_neox and mpt.
void read_gpt(const Source& source, spec::ModelSpec& model) {
  model.norm = spec::NormKind::layer;
  model.norm_bias = source.has_tensor("blk.0.attn_norm.bias");
  model.fused_qkv = true;
  model.attention_bias = source.has_tensor("blk.0.attn_qkv.bias");
  model.mlp_bias = source.has_tensor("blk.0.ffn_up.bias");
  model.gated_mlp = false;
  model.activation = spec::Activation::gelu;
}

void read_gpt2(const Source& source, spec::ModelSpec& model) {
  read_gpt(source, model);
  model.positions = spec::Positions::learned;
  model.activation = spec::Activation::gelu_tanh;
}

void read_gptneox(const Source& source, spec::ModelSpec& model) {
  read_gpt(source, model);
  model.qkv_by_head = true;
  model.parallel_residual = source.metadata.boolean(source.key("use_parallel_residual"), true);
}

void read_mpt(const Source& source, spec::ModelSpec& model) {
  read_gpt(source, model);
  model.clip_qkv = source.real("attention.clamp_kqv", 0);
  const double bias = source.real("attention.max_alibi_bias", 0);
  model.positions = bias > 0 ? spec::Positions::alibi : spec::Positions::learned;
  if (bias > 0) model.alibi_bias_max = bias;
  if (source.has_tensor("blk.0.attn_q_norm.weight")) model.qk_norm = spec::QkNorm::all_heads;
}

// The key-values being written. Rejects properties that llama.cpp's architecture does not compute.
struct Target {
  GgufMetadata& metadata;
  std::string architecture;

  void count(const char* name, int64_t value) const {
    metadata.add(architecture + "." + name, static_cast<uint32_t>(value));
  }
  void real(const char* name, double value) const {
    metadata.add(architecture + "." + name, static_cast<float>(value));
  }
  void require(bool holds, const char* what) const {
    if (holds) return;
    throw_hint(ErrorKind::unsupported, "write a Hugging Face folder (--to hf)",
               "llama.cpp's architecture '{}' has no {}, which this model needs", architecture, what);
  }
};

// A sliding window at least as long as the context has no effect.
bool sees_all(const spec::ModelSpec& model) { return model.window == 0 || model.window >= model.context; }

void write_llama(const spec::ModelSpec& model, const Target& target) {
  if (!sees_all(model)) {
    throw_hint(ErrorKind::unsupported,
               fmt::format("set sliding_window to null in config.json if texts stay within {} tokens", model.window),
               "llama.cpp's architecture 'llama' has no sliding window, which this model needs");
  }
  target.require(model.activation == spec::Activation::silu, "activation other than silu");
  if (model.experts == 0) return;
  target.count("expert_count", model.experts);
  target.count("expert_used_count", model.experts_per_token);
}

void write_qwen(const spec::ModelSpec& model, const Target& target) {
  target.require(model.activation == spec::Activation::silu, "activation other than silu");
  target.require(sees_all(model), "sliding window");
  target.require(!model.attention_out_bias, "bias in the attention output");
  target.require(model.family == "qwen3" || model.heads * model.head_dim == model.hidden,
                 "head size other than hidden / heads");
}

void write_gemma2(const spec::ModelSpec& model, const Target& target) {
  target.require(!model.attention_out_bias, "bias in the attention output");
  target.require(model.tied_head, "output head separate from the embedding");
  target.require(model.attention_softcap > 0 && model.final_softcap > 0, "option without soft caps");
  target.require(model.activation == spec::Activation::gelu_tanh, "activation other than gelu_pytorch_tanh");
  target.require(model.window == 0 || model.window_pattern == spec::WindowPattern::even,
                 "sliding window in every layer");
  target.require(std::abs(model.attention_scale - gemma2_scale(model)) < 1e-9,
                 "support for this query_pre_attn_scalar");
  target.real("attn_logit_softcapping", model.attention_softcap);
  target.real("final_logit_softcapping", model.final_softcap);
  target.count("attention.sliding_window", model.window > 0 ? model.window : model.context);
}

void write_gpt2(const spec::ModelSpec& model, const Target& target) {
  target.require(model.activation == spec::Activation::gelu_tanh, "activation other than gelu_new");
  target.require(model.attention_scale == 0, "unscaled attention");
}

void write_gptneox(const spec::ModelSpec& model, const Target& target) {
  target.require(model.activation == spec::Activation::gelu, "activation other than gelu");
  target.require(model.attention_bias && model.attention_out_bias, "attention without biases");
  target.metadata.add("gptneox.use_parallel_residual", model.parallel_residual);
}

void write_mpt(const spec::ModelSpec& model, const Target& target) {
  target.require(model.activation == spec::Activation::gelu, "activation other than gelu");
  target.require(model.logit_scale == 1, "logit_scale");
  target.require(model.attention_scale == 0, "softmax_scale");
  target.require(model.qk_norm == spec::QkNorm::none || model.kv_heads == model.heads,
                 "key norm with fewer key heads than query heads");
  if (model.clip_qkv > 0) target.real("attention.clamp_kqv", model.clip_qkv);
  target.real("attention.max_alibi_bias", model.positions == spec::Positions::alibi ? model.alibi_bias_max : 0);
}

struct Architecture {
  const char* name;
  const char* family;  // as which a file of this architecture is read
  void (*read)(const Source& source, spec::ModelSpec& model);
  void (*write)(const spec::ModelSpec& model, const Target& target);
};

constexpr Architecture architectures[] = {
    {"llama", "llama", read_llama, write_llama}, {"qwen2", "qwen2", read_qwen, write_qwen},
    {"qwen3", "qwen3", read_qwen, write_qwen},   {"gemma2", "gemma2", read_gemma2, write_gemma2},
    {"gpt2", "gpt2", read_gpt2, write_gpt2},     {"gptneox", "gpt_neox", read_gptneox, write_gptneox},
    {"mpt", "mpt", read_mpt, write_mpt},
};

const Architecture& architecture_named(const std::string& name, const std::string& file) {
  std::string known;
  for (const Architecture& architecture : architectures) {
    if (name == architecture.name) return architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  throw_hint(ErrorKind::unsupported, "supported: " + known, "{}: the architecture '{}' is not supported", file, name);
}

const Architecture& architecture_of(const spec::ModelSpec& model) {
  for (const Architecture& architecture : architectures) {
    if (model.family == architecture.family) return architecture;
  }
  return architectures[0];  // mistral and mixtral
}

int64_t vocabulary(const Source& source) {
  const StoredTensor* embedding = source.store.find("token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) return embedding->shape[0];
  if (source.metadata.contains(source.key("vocab_size"))) return source.integer("vocab_size");
  return static_cast<int64_t>(source.metadata.texts("tokenizer.ggml.tokens").size());
}

const char* epsilon_key(const spec::ModelSpec& model) {
  return model.norm == spec::NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
}

}  // namespace

spec::ModelSpec gguf_model(const TensorStore& store) {
  const GgufMetadata& metadata = store.gguf()->metadata();
  const std::string name = metadata.text("general.architecture");
  const Source source{store, metadata, store.path().string(), name};
  const Architecture& architecture = architecture_named(name, source.file);
  spec::ModelSpec model;
  model.family = architecture.family;
  model.vocab = vocabulary(source);
  model.hidden = source.integer("embedding_length");
  model.ffn = source.integer("feed_forward_length");
  model.layers = source.integer("block_count");
  model.heads = source.integer("attention.head_count");
  model.kv_heads = source.integer("attention.head_count_kv", model.heads);
  const int64_t even = model.heads > 0 ? model.hidden / model.heads : 0;
  model.head_dim = source.integer("attention.key_length", even);
  if (source.integer("attention.value_length", model.head_dim) != model.head_dim) {
    throw_error(ErrorKind::unsupported, "{}: key size {} and value size {} of a head differ, which is not supported",
                source.file, model.head_dim, source.integer("attention.value_length"));
  }
  model.context = source.integer("context_length");
  model.tied_head = !source.has_tensor("output.weight");
  model.attention_bias = source.has_tensor("blk.0.attn_q.bias");
  model.attention_out_bias = source.has_tensor("blk.0.attn_output.bias");
  model.mlp_bias = source.has_tensor("blk.0.ffn_gate.bias");
  architecture.read(source, model);
  model.norm_epsilon = source.real(epsilon_key(model));
  if (model.positions == spec::Positions::rotary) read_rope(source, model);
  try {
    spec::check(model);
  } catch (const Error& error) {
    throw Error(error.kind(), source.file + ": " + error.message(), error.hint());
  }
  return model;
}

GgufMetadata gguf_model_metadata(const spec::ModelSpec& model, const std::string& name, uint32_t file_type) {
  const Architecture& architecture = architecture_of(model);
  GgufMetadata metadata("the GGUF file to write");
  const Target target{metadata, architecture.name};
  metadata.add("general.architecture", std::string(architecture.name));
  metadata.add("general.type", std::string("model"));
  metadata.add("general.name", name);
  metadata.add("general.file_type", file_type);
  metadata.add("general.quantization_version", uint32_t{2});
  target.count("vocab_size", model.vocab);
  target.count("context_length", model.context);
  target.count("embedding_length", model.hidden);
  target.count("block_count", model.layers);
  target.count("feed_forward_length", model.ffn);
  target.count("attention.head_count", model.heads);
  target.count("attention.head_count_kv", model.kv_heads);
  target.count("attention.key_length", model.head_dim);
  target.count("attention.value_length", model.head_dim);
  target.real(epsilon_key(model), model.norm_epsilon);
  if (model.positions == spec::Positions::rotary) {
    target.count("rope.dimension_count", model.rotary_dim > 0 ? model.rotary_dim : model.head_dim);
    target.real("rope.freq_base", model.rope_theta);
  }
  if (model.rope_scaling.kind == Kind::linear) {
    metadata.add(std::string(architecture.name) + ".rope.scaling.type", std::string("linear"));
    target.real("rope.scaling.factor", model.rope_scaling.factor);
  }
  target.require(model.rope_scaling.kind != Kind::llama3 || std::string_view(architecture.name) == "llama",
                 "rope scaling of Llama 3");
  architecture.write(model, target);
  return metadata;
}

bool gguf_needs_head(const spec::ModelSpec& model) { return model.family == "gpt_neox"; }

std::vector<float> rope_divisors(const spec::ModelSpec& model) {
  std::vector<float> divisors;
  for (double divisor : divisors_of(model)) divisors.push_back(static_cast<float>(divisor));
  return divisors;
}

}  // namespace ingot::checkpoint
