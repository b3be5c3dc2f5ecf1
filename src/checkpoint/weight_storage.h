// The setting `weights` of recipes and the option --weights: the storage types of a model's matrices in memory.
#pragma once

#include <optional>
#include <string>

#include "spec/model.h"
#include "tensor/weight.h"

namespace ingot::checkpoint {

struct WeightStorage {
  std::optional<StorageType> matrices;  // absent: as in the file
  std::optional<StorageType> blocks =
      {};  // for linear layers of the blocks (spec::is_block_linear); absent: as `matrices`

  // The storage type of a parameter that is a matrix and has the type `stored` in its file. Position embeddings and
  // routers become f32 instead of a block-quantised type. Errors: internal when the type is left to the file and there
  // is no file.
  StorageType of(const spec::ParamSpec& p, std::optional<StorageType> stored = {}) const;
  // Whether a matrix has, or may have, a type other than `activation`, so that gemms must decode it.
  bool decoded(DType activation) const;
};

// Parses auto (same type as the activations), stored, bf16, fp16, fp32, int8 (q8_0), int4 (q4_0, but q8_0 outside the
// blocks' linear layers) or fp8 (e4m3, but the activations' type outside them); absent for another word.
std::optional<WeightStorage> weight_storage(const std::string& word, DType activation);

}  // namespace ingot::checkpoint
