#include "checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numbers>

#include "base/error.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

namespace {

using formats::GgufMetadata;
using Kind = spec::RopeScaling::Kind;

// Divisors are computed in fp32 by some converters; every candidate differs from another by far more.
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

// Finds the scaling of which `stored` are the divisors, with Llama 3's low 1 and high 4: the factor is the last one,
// and a blended one gives the original context.
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
    throw_hint(ErrorKind::unsupported, "Ingot has: none, linear, and Llama 3's scaling",
               "{}: the frequency divisors in tensor 'rope_freqs.weight' are not those of Llama 3 (element {} is {})",
               file, pair, stored[pair]);
  }
  return scaling;
}

void read_rope(const TensorStore& store, spec::ModelSpec& model) {
  const GgufMetadata& metadata = store.gguf()->metadata();
  const std::string file = store.path().string();
  model.rope_theta = shortest(metadata.real("llama.rope.freq_base", 10000.0));
  const std::string type = metadata.text("llama.rope.scaling.type", "none");
  double factor = metadata.real("llama.rope.scale_linear", 1.0);  // files of 2023
  if (type == "linear") {
    factor = metadata.real("llama.rope.scaling.factor");
  } else if (type != "none") {
    throw_hint(ErrorKind::unsupported, "Ingot has: none, linear, and Llama 3's scaling",
               "{}: rope scaling '{}' is not supported", file, type);
  }
  if (factor != 1.0) model.rope_scaling = {.kind = Kind::linear, .factor = shortest(factor)};
  const int64_t rotated = metadata.integer("llama.rope.dimension_count", model.head_dim);
  if (rotated != model.head_dim) {
    throw_error(ErrorKind::unsupported, "{}: rotary positions on {} of {} elements of each head", file, rotated,
                model.head_dim);
  }
  const StoredTensor* divisors = store.find("rope_freqs.weight");
  if (divisors == nullptr) return;
  if (divisors->storage != Storage::f32 || divisors->shape != std::vector<int64_t>{model.head_dim / 2}) {
    throw_error(ErrorKind::corrupt, "{}: tensor 'rope_freqs.weight' is {}, expected F32 [{}]", file, divisors->text(),
                model.head_dim / 2);
  }
  std::vector<float> stored(static_cast<size_t>(model.head_dim / 2));
  decode_row(Storage::f32, divisors->bytes.data(), model.head_dim / 2, stored.data());
  if (std::all_of(stored.begin(), stored.end(), [](float divisor) { return divisor == 1.0F; })) return;
  if (model.rope_scaling.kind != Kind::none) {
    throw_error(ErrorKind::unsupported, "{}: both linear rope scaling and 'rope_freqs.weight'", file);
  }
  model.rope_scaling = scaling_of(model, stored, file);
}

int64_t vocabulary(const TensorStore& store) {
  const StoredTensor* embedding = store.find("token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) return embedding->shape[0];
  const GgufMetadata& metadata = store.gguf()->metadata();
  if (metadata.contains("llama.vocab_size")) return metadata.integer("llama.vocab_size");
  return static_cast<int64_t>(metadata.texts("tokenizer.ggml.tokens").size());
}

}  // namespace

spec::ModelSpec gguf_model(const TensorStore& store) {
  const GgufMetadata& metadata = store.gguf()->metadata();
  const std::string file = store.path().string();
  const std::string architecture = metadata.text("general.architecture");
  if (architecture != "llama") {
    throw_hint(ErrorKind::unsupported, "Ingot has: llama", "{}: the architecture '{}' is not supported", file,
               architecture);
  }
  for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"}) {
    if (metadata.integer(key, 0) == 0) continue;
    throw_error(ErrorKind::unsupported, "{}: {} = {} is not supported", file, key, metadata.integer(key));
  }
  spec::ModelSpec model;
  model.family = "llama";
  model.vocab = vocabulary(store);
  model.hidden = metadata.integer("llama.embedding_length");
  model.ffn = metadata.integer("llama.feed_forward_length");
  model.layers = metadata.integer("llama.block_count");
  model.heads = metadata.integer("llama.attention.head_count");
  model.kv_heads = metadata.integer("llama.attention.head_count_kv", model.heads);
  const int64_t even = model.heads > 0 ? model.hidden / model.heads : 0;
  model.head_dim = metadata.integer("llama.attention.key_length", even);
  if (metadata.integer("llama.attention.value_length", model.head_dim) != model.head_dim) {
    throw_error(ErrorKind::unsupported, "{}: keys of {} and values of {} elements a head", file, model.head_dim,
                metadata.integer("llama.attention.value_length"));
  }
  model.context = metadata.integer("llama.context_length");
  model.norm_epsilon = shortest(metadata.real("llama.attention.layer_norm_rms_epsilon"));
  model.tied_head = store.find("output.weight") == nullptr;
  model.attention_bias = store.find("blk.0.attn_q.bias") != nullptr;
  model.attention_out_bias = store.find("blk.0.attn_output.bias") != nullptr;
  model.mlp_bias = store.find("blk.0.ffn_gate.bias") != nullptr;
  read_rope(store, model);
  try {
    spec::check(model);
  } catch (const Error& error) {
    throw Error(error.kind(), file + ": " + error.message(), error.hint());
  }
  return model;
}

GgufMetadata gguf_model_metadata(const spec::ModelSpec& model, const std::string& name, uint32_t file_type) {
  GgufMetadata metadata("the GGUF file to write");
  const auto count = [&](const char* key, int64_t value) { metadata.add(key, static_cast<uint32_t>(value)); };
  const auto real = [&](const char* key, double value) { metadata.add(key, static_cast<float>(value)); };
  metadata.add("general.architecture", std::string("llama"));
  metadata.add("general.type", std::string("model"));
  metadata.add("general.name", name);
  metadata.add("general.file_type", file_type);
  metadata.add("general.quantization_version", uint32_t{2});
  count("llama.vocab_size", model.vocab);
  count("llama.context_length", model.context);
  count("llama.embedding_length", model.hidden);
  count("llama.block_count", model.layers);
  count("llama.feed_forward_length", model.ffn);
  count("llama.attention.head_count", model.heads);
  count("llama.attention.head_count_kv", model.kv_heads);
  count("llama.attention.key_length", model.head_dim);
  count("llama.attention.value_length", model.head_dim);
  real("llama.attention.layer_norm_rms_epsilon", model.norm_epsilon);
  count("llama.rope.dimension_count", model.head_dim);
  real("llama.rope.freq_base", model.rope_theta);
  if (model.rope_scaling.kind == Kind::linear) {
    metadata.add("llama.rope.scaling.type", std::string("linear"));
    real("llama.rope.scaling.factor", model.rope_scaling.factor);
  }
  return metadata;
}

std::vector<float> rope_divisors(const spec::ModelSpec& model) {
  std::vector<float> divisors;
  for (double divisor : divisors_of(model)) divisors.push_back(static_cast<float>(divisor));
  return divisors;
}

}  // namespace ingot::checkpoint
