// config.json of each family: how its keys are read and written. Format: specs/hf_models.md, section 2, and the
// configuration classes of transformers (github.com/huggingface/transformers), whose defaults missing keys take.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/json_object.h"
#include "spec/model.h"

namespace ingot::checkpoint {

struct HfFamily {
  const char* model_type;  // also spec's name of the family
  const char* architecture;
  spec::ModelSpec (*read)(const JsonObject& config);
  // Adds the family's keys of transformers 4, which 5 reads too. Errors: unsupported, by name, for what has no key.
  void (*write)(const spec::ModelSpec& model, nlohmann::json& out);
};

std::span<const HfFamily> hf_llama_families();  // llama, mistral, qwen2, qwen3, gemma2, mixtral
std::span<const HfFamily> hf_gpt_families();    // gpt2, gpt_neox
std::span<const HfFamily> hf_mpt_families();    // mpt

// Errors: unsupported, naming the key and its value, when it is there and is not `only`.
void refuse_unless(const JsonObject& config, const char* key, bool only);

// rope_theta, rope_scaling and rope_parameters into model.rope_theta and rope_scaling; returns the part of a head that
// is rotated. What the file does not say is `theta` and `rotated`.
double read_rope(const JsonObject& config, spec::ModelSpec& model, double theta, double rotated);
// rope_theta and rope_scaling.
void write_rope(const spec::ModelSpec& model, nlohmann::json& out);

// `value` as an activation. Errors: unsupported, naming the key.
spec::Activation read_activation(const JsonObject& config, const char* key, const char* fallback);

// head_dim, or hidden / heads. Errors: corrupt when these do not divide.
int64_t read_head_dim(const JsonObject& config, const spec::ModelSpec& model, std::optional<int64_t> fallback);

}  // namespace ingot::checkpoint
