// Random weights for pretraining.
#pragma once

#include <cstdint>

#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::train {

// Bytes of an allocation for a model's weights: matrices in `type` (f32 or bf16), vectors in f32.
size_t weight_bytes(const spec::ModelSpec& model, DType type);

// Weights initialised as the parameter table says (normal with init_std, zeros, ones), in one allocation. Each
// parameter's values depend only on (seed, the parameter's index in the table); they are drawn in fp32 and rounded to
// `type`.
WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed);

}  // namespace ingot::train
