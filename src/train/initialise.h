// Random weights for pretraining.
#pragma once

#include <cstdint>
#include <span>

#include "spec/model_shard.h"
#include "tensor/weight_set.h"

namespace ingot::train {

// Bytes of an allocation for the weights `held`: matrices in `type` (f32 or bf16), vectors in f32.
size_t weight_bytes(std::span<const spec::HeldParameter> held, DType type);

// Weights initialised as the parameter table says (normal with init_std, zeros, ones), in one allocation; those of the
// model that are not in `held` are empty. Each parameter's values depend only on (seed, the parameter's index in the
// table); they are drawn in fp32 and rounded to `type`.
WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed,
                         std::span<const spec::HeldParameter> held);
// The whole model's.
WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed);

}  // namespace ingot::train
