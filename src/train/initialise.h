// Random weights for pretraining.
#pragma once

#include <cstdint>

#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::train {

// Bytes of a model's weights in memory of our own: matrices in `type` (f32 or bf16), vectors in f32.
size_t weight_bytes(const spec::ModelSpec& model, DType type);

// Weights as the parameter table says (normal of init_std, zeros, ones), in one allocation. Each parameter's numbers
// are a function of (seed, its name's place in the table) alone, drawn in fp32 and rounded to `type`.
WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed);

}  // namespace ingot::train
