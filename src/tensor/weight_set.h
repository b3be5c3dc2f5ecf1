// The weights of a model in memory, indexed as in its parameter table (spec::parameters). Where a rank holds a part of
// the model, the other parameters are empty.
#pragma once

#include <memory>
#include <vector>

#include "tensor/weight.h"

namespace ingot {

// One parameter: a matrix in any storage, or a vector (norm, bias) in f32.
struct Parameter {
  Weight matrix;  // [out, in]
  Tensor vector;  // [n] f32
};

// Parameters and the owners of their memory (arenas, file maps). Move-only.
struct WeightSet {
  std::vector<Parameter> parameters;
  std::vector<std::shared_ptr<const void>> owners;

  WeightSet() = default;
  WeightSet(WeightSet&&) = default;
  WeightSet& operator=(WeightSet&&) = default;
};

}  // namespace ingot
