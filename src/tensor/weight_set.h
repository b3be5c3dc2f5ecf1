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

// The form in which a rank has a parameter in memory: its size without its values.
struct ParameterForm {
  size_t number = 0;  // index in the parameter table
  StorageType storage = StorageType::f32;
  Shape shape{};  // as held: [out, in] or [n]

  size_t bytes() const {
    return shape.rank() == 2 ? static_cast<size_t>(shape[0]) * row_bytes(storage, shape[1])
                             : static_cast<size_t>(shape[0]) * block_bytes(storage);
  }
  Parameter at(void* data, const Device& device) const {
    if (shape.rank() == 2) return {Weight{storage, data, shape[0], shape[1], &device}, {}};
    return {{}, Tensor{data, DType::f32, shape, &device}};
  }
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
