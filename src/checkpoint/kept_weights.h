// What `weights` says, in recipes and as --weights: the types in which a model's matrices are kept.
#pragma once

#include <optional>
#include <string>

#include "spec/model.h"
#include "tensor/weight.h"

namespace ingot::checkpoint {

struct KeptWeights {
  std::optional<Storage> matrices;     // absent: the file's types
  std::optional<Storage> blocks = {};  // of the blocks' linear layers (spec::is_block_linear); absent: as the others

  // Of a parameter that is a matrix, and has the type `stored` in its file. Tables of positions and routers do not
  // become block-quantised but f32. Errors: internal for one that keeps its file's type, where there is no file.
  Storage of(const spec::ParamSpec& p, std::optional<Storage> stored = {}) const;
  // Whether a matrix has, or may have, another type than `activation`, so that products decode it.
  bool decoded(DType activation) const;
};

// Of auto (as activations are), stored, bf16, fp16, fp32, int8 (q8_0), int4 (q4_0, but q8_0 outside the blocks' linear
// layers) or fp8 (e4m3, but as activations are outside them); nothing for another word.
std::optional<KeptWeights> kept_weights(const std::string& word, DType activation);

}  // namespace ingot::checkpoint
