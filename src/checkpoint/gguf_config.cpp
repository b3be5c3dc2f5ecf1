#include "checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "checkpoint/family_formats.h"
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

double wavelength(const spec::Rope& rope, int64_t head_dim, size_t pair) {
  const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(head_dim);
  return 2 * std::numbers::pi * std::pow(rope.theta, exponent);
}

std::vector<double> divisors_of(const spec::Rope& rope, int64_t head_dim) {
  const spec::RopeScaling& scaling = rope.scaling;
  std::vector<double> divisors;
  for (size_t pair = 0; pair < static_cast<size_t>(head_dim / 2); ++pair) {
    const double turns = static_cast<double>(scaling.original_context) / wavelength(rope, head_dim, pair);
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
spec::RopeScaling scaling_of(const spec::Rope& rope, int64_t head_dim, const std::vector<float>& stored,
                             const std::string& file) {
  spec::Rope candidate = rope;
  spec::RopeScaling& scaling = candidate.scaling;
  scaling.kind = Kind::llama3;
  scaling.factor = shortest(*std::max_element(stored.begin(), stored.end()));
  for (size_t pair = 0; pair < stored.size(); ++pair) {
    const double inverse = 1.0 / static_cast<double>(stored[pair]);
    const double smooth = (inverse - 1 / scaling.factor) / (1 - 1 / scaling.factor);
    if (!(smooth > 0.01 && smooth < 0.99)) continue;
    const double turns = scaling.low_freq_factor + smooth * (scaling.high_freq_factor - scaling.low_freq_factor);
    scaling.original_context = static_cast<int64_t>(std::llround(turns * wavelength(rope, head_dim, pair)));
    break;
  }
  const std::vector<double> expected = divisors_of(candidate, head_dim);
  for (size_t pair = 0; pair < stored.size(); ++pair) {
    if (std::abs(static_cast<double>(stored[pair]) - expected[pair]) <= divisor_tolerance * expected[pair]) continue;
    throw_hint(ErrorKind::unsupported, "supported: none, linear, and Llama 3's scaling",
               "{}: the frequency divisors in tensor 'rope_freqs.weight' are not those of Llama 3 (element {} is {})",
               file, pair, stored[pair]);
  }
  return scaling;
}

void read_divisors(const GgufSource& source, spec::Attention& attention) {
  spec::Rope& rope = *attention.rope;
  const StoredTensor* divisors = source.store.find("rope_freqs.weight");
  if (divisors == nullptr) return;
  if (divisors->storage != StorageType::f32 || divisors->shape != std::vector<int64_t>{attention.head_dim / 2}) {
    throw_error(ErrorKind::corrupt, "{}: tensor 'rope_freqs.weight' is {}, expected F32 [{}]", source.file,
                divisors->text(), attention.head_dim / 2);
  }
  std::vector<float> stored(static_cast<size_t>(attention.head_dim / 2));
  decode_row(StorageType::f32, divisors->bytes.data(), attention.head_dim / 2, stored.data());
  if (std::all_of(stored.begin(), stored.end(), [](float divisor) { return divisor == 1.0F; })) return;
  if (rope.scaling.kind != Kind::none) {
    throw_error(ErrorKind::unsupported,
                "{}: has both linear rope scaling and 'rope_freqs.weight', which is not supported", source.file);
  }
  rope.scaling = scaling_of(rope, attention.head_dim, stored, source.file);
}

void read_rope(const GgufSource& source, spec::Attention& attention, bool partial) {
  spec::Rope& rope = *attention.rope;
  rope.theta = source.real("rope.freq_base", 10000.0);
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
  if (factor != 1.0) rope.scaling = {.kind = Kind::linear, .factor = factor};
  const int64_t rotated = source.integer("rope.dimension_count", attention.head_dim);
  if (rotated != attention.head_dim && !partial) {
    throw_error(ErrorKind::unsupported, "{}: rotary embedding of only {} of {} elements of each head is not supported",
                source.file, rotated, attention.head_dim);
  }
  rope.dim = rotated == attention.head_dim ? 0 : rotated;
  read_divisors(source, attention);
}

// Calls fn(architecture) until it returns true.
template <class Fn>
void find_architecture(Fn fn) {
  for (const auto& group :
       {gguf_llama_architectures(), gguf_qwen_architectures(), gguf_gpt_architectures(), gguf_mpt_architectures()}) {
    for (const GgufArchitecture& architecture : group) {
      if (fn(architecture)) return;
    }
  }
}

const GgufArchitecture& architecture_named(const std::string& name, const std::string& file) {
  std::string known;
  const GgufArchitecture* found = nullptr;
  find_architecture([&](const GgufArchitecture& architecture) {
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
    if (name == architecture.name) found = &architecture;
    return found != nullptr;
  });
  if (found != nullptr) return *found;
  throw_hint(ErrorKind::unsupported, "supported: " + known, "{}: the architecture '{}' is not supported", file, name);
}

const GgufArchitecture& architecture_of(const spec::ModelSpec& model) {
  const GgufArchitecture* found = &gguf_llama_architectures().front();  // also of mistral and mixtral
  find_architecture([&](const GgufArchitecture& architecture) {
    const bool same_name = model.family == architecture.family;
    if (same_name) found = &architecture;
    return same_name;
  });
  return *found;
}

int64_t vocabulary(const GgufSource& source) {
  const StoredTensor* embedding = source.store.find("token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) return embedding->shape[0];
  if (source.metadata.contains(source.key("vocab_size"))) return source.integer("vocab_size");
  return static_cast<int64_t>(source.metadata.texts("tokenizer.ggml.tokens").size());
}

const char* epsilon_key(const spec::ModelSpec& model) {
  return model.norm == spec::NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
}

}  // namespace

double GgufSource::real(const char* name) const { return shortest(metadata.real(key(name))); }
double GgufSource::real(const char* name, double missing) const { return shortest(metadata.real(key(name), missing)); }

void GgufTarget::require(bool holds, const char* what) const {
  if (holds) return;
  throw_hint(ErrorKind::unsupported, "write a Hugging Face folder (--to hf)",
             "llama.cpp's architecture '{}' has no {}, which this model needs", architecture, what);
}

spec::ModelSpec gguf_model(const TensorStore& store) {
  const GgufMetadata& metadata = store.gguf()->metadata();
  const std::string name = metadata.text("general.architecture");
  const GgufSource source{store, metadata, store.path().string(), name};
  const GgufArchitecture& architecture = architecture_named(name, source.file);
  spec::ModelSpec model;
  spec::LayerSpec layer;
  spec::Attention& attention = layer.attention;
  model.family = architecture.family;
  model.vocab = vocabulary(source);
  model.hidden = source.integer("embedding_length");
  spec::dense_of(layer.mlp).features = source.integer("feed_forward_length");
  const int64_t layers = source.integer("block_count");
  attention.heads = source.integer("attention.head_count");
  attention.kv_heads = source.integer("attention.head_count_kv", attention.heads);
  const int64_t even = attention.heads > 0 ? model.hidden / attention.heads : 0;
  attention.head_dim = source.integer("attention.key_length", even);
  if (source.integer("attention.value_length", attention.head_dim) != attention.head_dim) {
    throw_error(ErrorKind::unsupported, "{}: key size {} and value size {} of a head differ, which is not supported",
                source.file, attention.head_dim, source.integer("attention.value_length"));
  }
  model.context = source.integer("context_length");
  model.tied_head = !source.has_tensor("output.weight");
  attention.bias = source.has_tensor("blk.0.attn_q.bias");
  attention.out_bias = source.has_tensor("blk.0.attn_output.bias");
  spec::dense_of(layer.mlp).bias = source.has_tensor("blk.0.ffn_gate.bias");
  architecture.read(source, model, layer);
  model.norm_epsilon = source.real(epsilon_key(model));
  if (attention.rope) read_rope(source, attention, architecture.partial_rope);
  try {
    model.layers = spec::repeated(layers, layer);
    if (architecture.vary) architecture.vary(source, model);
    spec::check(model);
  } catch (const Error& error) {
    throw Error(error.kind(), source.file + ": " + error.message(), error.hint());
  }
  return model;
}

GgufMetadata gguf_model_metadata(const spec::ModelSpec& model, const std::string& name, uint32_t file_type) {
  const GgufArchitecture& architecture = architecture_of(model);
  const spec::LayerSpec& layer = model.layers.front();
  const spec::Attention& attention = layer.attention;
  GgufMetadata metadata("the GGUF file to write");
  const GgufTarget target{metadata, architecture.name};
  metadata.add("general.architecture", std::string(architecture.name));
  metadata.add("general.type", std::string("model"));
  metadata.add("general.name", name);
  metadata.add("general.file_type", file_type);
  metadata.add("general.quantization_version", uint32_t{2});
  target.count("vocab_size", model.vocab);
  target.count("context_length", model.context);
  target.count("embedding_length", model.hidden);
  target.count("block_count", model.num_layers());
  target.count("feed_forward_length", spec::dense_of(layer.mlp).features);
  target.count("attention.head_count", attention.heads);
  target.count("attention.head_count_kv", attention.kv_heads);
  target.count("attention.key_length", attention.head_dim);
  target.count("attention.value_length", attention.head_dim);
  target.real(epsilon_key(model), model.norm_epsilon);
  if (attention.rope) {
    const spec::Rope& rope = *attention.rope;
    target.count("rope.dimension_count", rope.dim > 0 ? rope.dim : attention.head_dim);
    target.real("rope.freq_base", rope.theta);
    if (rope.scaling.kind == Kind::linear) {
      metadata.add(std::string(architecture.name) + ".rope.scaling.type", std::string("linear"));
      target.real("rope.scaling.factor", rope.scaling.factor);
    }
    target.require(rope.scaling.kind != Kind::llama3 || std::string_view(architecture.name) == "llama",
                   "rope scaling of Llama 3");
  }
  architecture.write(model, target);
  return metadata;
}

bool gguf_needs_head(const spec::ModelSpec& model) { return architecture_of(model).needs_head; }

std::vector<float> rope_divisors(const spec::Attention& attention) {
  std::vector<float> divisors;
  if (!attention.rope || attention.rope->scaling.kind != Kind::llama3) return divisors;
  for (double divisor : divisors_of(*attention.rope, attention.head_dim)) {
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

}  // namespace ingot::checkpoint
