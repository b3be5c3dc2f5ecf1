// Random weights for pretraining.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/load.h"
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
// The same values, of which only these bytes of each parameter are kept (checkpoint::KeptBytes), by index of the table.
void write_random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed,
                          std::span<const spec::HeldParameter> held, std::span<const checkpoint::KeptBytes> kept);
// The forms of random weights.
std::vector<ParameterForm> random_forms(std::span<const spec::HeldParameter> held, DType type);
// The whole model's.
WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed);

}  // namespace ingot::train
