// How each family's hyper-parameters are read from and written to config.json and GGUF metadata. Families that share
// most keys are in one file, families_*.cpp. Keys of config.json, and the defaults of missing ones, are those of
// transformers' configuration classes (github.com/huggingface/transformers); GGUF keys are in gguf-py/gguf/constants.py
// of github.com/ggml-org/llama.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/json_object.h"
#include "checkpoint/tensor_store.h"
#include "formats/gguf_metadata.h"
#include "spec/model.h"

namespace ingot::checkpoint {

struct HfFamily {
  const char* model_type;  // also ModelSpec::family
  const char* architecture;
  spec::ModelSpec (*read)(const JsonObject& config);
  // Adds the family's keys to `out`, named as in transformers 4, which transformers 5 reads too.
  void (*write)(const spec::ModelSpec& model, nlohmann::json& out);
};

// The contents of a GGUF file of one architecture.
struct GgufSource {
  const TensorStore& store;
  const formats::GgufMetadata& metadata;
  std::string file;
  std::string architecture;

  std::string key(const char* name) const { return architecture + "." + name; }
  int64_t integer(const char* name) const { return metadata.integer(key(name)); }
  int64_t integer(const char* name, int64_t missing) const { return metadata.integer(key(name), missing); }
  // The shortest decimal number that rounds to the stored fp32 value.
  double real(const char* name) const;
  double real(const char* name, double missing) const;
  bool has_tensor(const char* name) const { return store.find(name) != nullptr; }
};

// The key-values being written.
struct GgufTarget {
  formats::GgufMetadata& metadata;
  std::string architecture;

  void count(const char* name, int64_t value) const {
    metadata.add(architecture + "." + name, static_cast<uint32_t>(value));
  }
  void real(const char* name, double value) const {
    metadata.add(architecture + "." + name, static_cast<float>(value));
  }
  // ErrorKind::unsupported unless `holds`: llama.cpp's architecture does not compute `what`.
  void require(bool holds, const char* what) const;
};

// An architecture of llama.cpp. Several families may be written as one; its files are read as `family`.
struct GgufArchitecture {
  const char* name;
  const char* family;
  // `layer` is what all layers have in common, with the sizes that every architecture's files give.
  void (*read)(const GgufSource& source, spec::ModelSpec& model, spec::LayerSpec& layer);
  void (*write)(const spec::ModelSpec& model, const GgufTarget& target);
  // Null, or sets what differs between layers.
  void (*vary)(const GgufSource& source, spec::ModelSpec& model) = nullptr;
  bool partial_rope = false;  // it computes rotary positions of a part of each head
  bool needs_head = false;    // files have an output head even for a tied one
};

std::span<const HfFamily> hf_llama_families();
std::span<const HfFamily> hf_qwen_families();
std::span<const HfFamily> hf_gpt_families();
std::span<const HfFamily> hf_mpt_families();
std::span<const GgufArchitecture> gguf_llama_architectures();
std::span<const GgufArchitecture> gguf_qwen_architectures();
std::span<const GgufArchitecture> gguf_gpt_architectures();
std::span<const GgufArchitecture> gguf_mpt_architectures();

// Errors: unsupported, naming the key and its value, when the key is present with a value other than `only`.
void require_value(const JsonObject& config, const char* key, bool only);

// Sets model.layers to `count` layers like `layer`. Errors: corrupt, for a number out of range.
void set_layers(const JsonObject& config, spec::ModelSpec& model, int64_t count, const spec::LayerSpec& layer);

// The layer that represents all layers in a file that states a value once. `vary` resets the members that may differ
// between layers.
// Errors: internal when other members differ, which no reader of the family returns.
template <class Vary>
spec::LayerSpec common_layer(const spec::ModelSpec& model, Vary vary);
void check_common(bool common, const spec::ModelSpec& model);

// Reads rope_theta, rope_scaling and rope_parameters; returns the fraction of a head's dimensions that is rotated.
// `theta` and `rotated` are the defaults of missing keys.
double read_rope(const JsonObject& config, spec::Rope& rope, double theta, double rotated);
// Writes rope_theta and rope_scaling.
void write_rope(const spec::Rope& rope, nlohmann::json& out);

// Parses `key` as an activation. Errors: unsupported, naming the key.
spec::Activation read_activation(const JsonObject& config, const char* key, const char* fallback);

// Returns the key head_dim, else `fallback`, else hidden / heads. Errors: corrupt when heads does not divide hidden.
int64_t read_head_dim(const JsonObject& config, int64_t hidden, int64_t heads, std::optional<int64_t> fallback);

template <class Vary>
spec::LayerSpec common_layer(const spec::ModelSpec& model, Vary vary) {
  spec::LayerSpec first = model.layers.front();
  vary(first);
  for (spec::LayerSpec layer : model.layers) {
    vary(layer);
    check_common(layer == first, model);
  }
  return first;
}

inline spec::LayerSpec common_layer(const spec::ModelSpec& model) {
  return common_layer(model, [](spec::LayerSpec&) {});
}

}  // namespace ingot::checkpoint
