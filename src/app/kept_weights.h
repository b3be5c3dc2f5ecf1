// What `weights` says, in recipes and as --weights: the types in which a model's matrices are kept.
#pragma once

#include <optional>
#include <string>

#include "spec/model.h"
#include "tensor/weight.h"

namespace ingot::app {

struct KeptWeights {
  std::optional<Storage> matrices;  // absent: the file's types
  std::optional<Storage> blocks;    // of the blocks' linear layers; absent: as the others

  // Of a parameter that is a matrix: as checkpoint::load_model keeps it. Errors: internal for one of the file's type.
  Storage of(const spec::ParamSpec& p) const;
};

// Of auto (as activations are), stored, bf16, fp16, fp32, int8 (q8_0), int4 (q4_0, but q8_0 outside the blocks' linear
// layers) or fp8 (e4m3, but as activations are outside them); nothing for another word.
std::optional<KeptWeights> kept_weights(const std::string& word, DType activation);

}  // namespace ingot::app
