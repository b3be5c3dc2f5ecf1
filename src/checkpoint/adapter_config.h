// adapter_config.json of PEFT: which layers are adapted and how. Keys: LoraConfig in tuners/lora/config.py of
// github.com/huggingface/peft; target matching follows its tuners/tuners_utils.py.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::checkpoint {

// A layer to which an adapter applies.
struct AdaptedLayer {
  spec::LoraParam param;  // with its rank from rank_pattern
  float factor = 1;       // scale of B A x: alpha / rank or alpha / sqrt(rank), with alpha from alpha_pattern
  // The adapter's weight file may omit this layer's tensors. True for an expert or router that is matched by
  // "all-linear" or a regular expression: PEFT with transformers 5 does not see it as a layer.
  bool optional = false;
};

struct AdapterConfig {
  spec::LoraSpec lora;  // `targets` as in the file, a regular expression as one entry
  std::string base_name;
  bool dora = false;
  bool biases = false;                       // the file contains trained biases of the base model
  std::vector<std::string> modules_to_save;  // trained in full; named like targets
  std::vector<AdaptedLayer> layers;          // in parameter order
};

// Errors: not_found without the file; corrupt for contents that are not PEFT's, and for targets that match no layer;
// unsupported, by name, for features that Ingot does not apply: other PEFT types, lora_bias, embeddings as targets,
// target_parameters, layer_replication and initialisations that change the base weights (PiSSA, OLoRA, CorDA, LoftQ,
// ...).
AdapterConfig read_adapter_config(const std::filesystem::path& file, const spec::ModelSpec& model);

// Whether modules_to_save names this module or a module that contains it.
bool saves_module(const AdapterConfig& config, std::string_view module);

// Returns the text of adapter_config.json for a plain LoRA adapter.
std::string write_adapter_config(const spec::LoraSpec& lora, const std::string& base_name,
                                 const spec::ModelSpec& model);

}  // namespace ingot::checkpoint
