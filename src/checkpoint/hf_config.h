// config.json of Hugging Face directories. Format: the configuration classes of github.com/huggingface/transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model.h"

namespace ingot::checkpoint {

// The contents of a config.json that Ingot uses.
struct HfConfig {
  spec::ModelSpec model;
  std::string dtype;         // "bfloat16", "float32", ...; empty when absent
  std::vector<int64_t> bos;  // token ids; usually one, empty when null
  std::vector<int64_t> eos;
};

// Reads the keys of transformers 4 and 5; missing ones take the family's defaults. `source` names the file in messages.
// Errors: corrupt for invalid JSON, a missing model_type, wrong types and contradictions; unsupported, by name, for an
// unknown model_type, rope type or activation, for partial rotary positions and for a quantization_config.
HfConfig parse_hf_config(std::string_view text, const std::string& source);

// Returns the text of a config.json with the keys of transformers 4, which transformers 5 reads too. Errors:
// unsupported, naming the hyper-parameter, where the family has no key for one that this model has.
std::string write_hf_config(const HfConfig& config);

}  // namespace ingot::checkpoint
