// Reading and writing the config.json of each family. Format: specs/hf_models.md, section 2. Missing keys take the
// defaults of transformers' configuration classes (github.com/huggingface/transformers).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/json_object.h"
#include "spec/model.h"

namespace ingot::checkpoint {

struct HfFamily {
  const char* model_type;  // also ModelSpec::family
  const char* architecture;
  spec::ModelSpec (*read)(const JsonObject& config);
  // Adds the family's keys to `out`, named as in transformers 4, which transformers 5 reads too.
  void (*write)(const spec::ModelSpec& model, nlohmann::json& out);
};

std::span<const HfFamily> hf_llama_families();  // llama, mistral, qwen2, qwen3, gemma2, mixtral
std::span<const HfFamily> hf_gpt_families();    // gpt2, gpt_neox
std::span<const HfFamily> hf_mpt_families();    // mpt

// Errors: unsupported, naming the key and its value, when the key is present with a value other than `only`.
void require_value(const JsonObject& config, const char* key, bool only);

// Reads rope_theta, rope_scaling and rope_parameters into model.rope_theta and model.rope_scaling; returns the fraction
// of a head's dimensions that is rotated. `theta` and `rotated` are the defaults of missing keys.
double read_rope(const JsonObject& config, spec::ModelSpec& model, double theta, double rotated);
// Writes rope_theta and rope_scaling.
void write_rope(const spec::ModelSpec& model, nlohmann::json& out);

// Parses `key` as an activation. Errors: unsupported, naming the key.
spec::Activation read_activation(const JsonObject& config, const char* key, const char* fallback);

// Returns the key head_dim, else `fallback`, else hidden / heads. Errors: corrupt when heads does not divide hidden.
int64_t read_head_dim(const JsonObject& config, const spec::ModelSpec& model, std::optional<int64_t> fallback);

}  // namespace ingot::checkpoint
