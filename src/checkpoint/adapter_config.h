// adapter_config.json of PEFT: which layers are adapted and how. Format: specs/peft_lora.md section 2; rules of
// matching as PEFT has them (github.com/huggingface/peft, tuners/tuners_utils.py).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::checkpoint {

// A layer that an adapter adapts.
struct AdaptedLayer {
  spec::LoraParam param;  // with the rank of rank_pattern
  float factor = 1;       // of B A x: alpha / rank or alpha / sqrt(rank), by alpha_pattern
  // A file without tensors for it is whole all the same: a Mixtral expert or router under a target that names kinds of
  // layers ("all-linear", a regular expression), where PEFT sees no layer in transformers 5.
  bool optional = false;
};

struct AdapterConfig {
  spec::LoraSpec lora;  // `targets` as the file has them, a regular expression as one entry
  std::string base_name;
  bool dora = false;
  bool biases = false;                       // trained biases of the base lie in the file
  std::vector<std::string> modules_to_save;  // trained in full; named like targets
  std::vector<AdaptedLayer> layers;          // in parameter order
};

// Errors: not_found without the file; corrupt for what is not PEFT's, and for targets that no layer has; unsupported,
// by name, for what Ingot does not apply: other PEFT types, lora_bias, embeddings as targets, target_parameters,
// layer_replication and initialisations that change the base weights (PiSSA, OLoRA, CorDA, LoftQ, ...).
AdapterConfig read_adapter_config(const std::filesystem::path& file, const spec::ModelSpec& model);

// Whether modules_to_save names this module or one that holds it.
bool saves_module(const AdapterConfig& config, std::string_view module);

// The text of the file for an adapter of plain LoRA.
std::string write_adapter_config(const spec::LoraSpec& lora, const std::string& base_name,
                                 const spec::ModelSpec& model);

}  // namespace ingot::checkpoint
