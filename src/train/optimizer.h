// The optimizers. Each describes the state that it keeps for a parameter, whether its update needs whole matrices, and
// the update. A new one is a new entry here (CONTRIBUTING.md, "A new optimizer").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::train {

enum class OptimizerName { adamw };  // `optimizer.name` of recipes

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_grad_norm = 1;  // 0: no clipping
};

// What an update of this step has in common for all parameters.
struct UpdateAttributes {
  OptimizerSettings settings;
  double lr = 0;
  int64_t updates = 1;  // number of this update, from 1
  Tensor decision;  // [3] f64, output of ops::decide_update: the gradient's scale, and whether the update is skipped
};

// The own elements of one parameter, flat, n of them.
struct ParameterUpdate {
  Tensor master;                  // [n] f32 or bf16
  Tensor weight;                  // [n] bf16: the copy that the model computes with; absent if that is `master`
  Tensor gradient;                // [n] f32, the sum over the loss tokens
  std::span<const Tensor> state;  // [n] f32 or bf16 each, in the order of Optimizer::state
  bool decay = false;             // weight decay applies
};

// One number per element of the parameter.
struct StateSpec {
  const char* name;  // the tensor's name in checkpoints is "NAME.PARAMETER"
};

struct Optimizer {
  const char* name;
  std::span<const StateSpec> state;
  void (*update)(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes);
};

// The optimizer of a parameter in a run with `optimizer.name`.
const Optimizer& optimizer_for(OptimizerName name);

// A tensor in which the state of some elements of a parameter is stored.
struct StateTensor {
  std::string name;  // "moment1"
  Tensor tensor;     // without memory in the result of state_layout()
};

// The tensors that hold the state of `shape`, a parameter's own elements, in `type` (f32 or bf16), without memory.
std::vector<StateTensor> state_layout(const Optimizer& optimizer, const Shape& shape, DType type);

// Bytes of these tensors in an arena.
size_t state_bytes(const Optimizer& optimizer, const Shape& shape, DType type);

}  // namespace ingot::train
