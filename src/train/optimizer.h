// The optimizers. Each describes the state that it keeps for a parameter, whether its update needs whole matrices, and
// the update. A new one is a new entry in optimizer.cpp (CONTRIBUTING.md, "A new optimizer").
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

// The tensor's elements in one dimension.
inline Tensor flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.elements()}); }

enum class OptimizerName { adamw, muon, sgd, lion };  // `optimizer.name` of recipes

struct OptimizerSettings {
  double beta1 = 0.9;      // AdamW and Lion
  double beta2 = 0.95;     // AdamW and Lion
  double epsilon = 1e-8;   // AdamW
  double momentum = 0.95;  // Muon and SGD
  double weight_decay = 0;
  double clip_grad_norm = 1;  // 0: no clipping
};

// What the updates of a step have in common.
struct UpdateAttributes {
  OptimizerSettings settings;
  double lr = 0;
  int64_t updates = 1;  // number of this update, from 1
  Tensor decision;  // [3] f64, output of ops::decide_update: the gradient's scale, and whether the update is skipped
};

// The n elements of one parameter to update, flat: all of them if the optimizer needs whole matrices, else a part.
struct ParameterUpdate {
  Shape shape;      // of the whole parameter
  Tensor master;    // [n] f32 or bf16
  Tensor weight;    // [n] bf16: the copy that the model computes with; absent if that is `master`
  Tensor gradient;  // [n] f32, the sum over the loss tokens
  // In the order of Optimizer::state: [n] f32 or bf16 each, or for each codes [n] u8 and scales [ceil(n / 256)] f32.
  std::span<const Tensor> state;
  DType activation = DType::f32;  // the type that the model computes with: f32 or bf16
  bool decay = false;             // weight decay applies

  bool is_coded() const { return !state.empty() && state[0].dtype == DType::u8; }  // 8-bit states
};

// A state has one number per element of the parameter. All are 0 at first.
struct StateSpec {
  const char* name;  // the tensor's name in checkpoints is "NAME.PARAMETER"
};

struct Optimizer {
  const char* name;
  std::span<const StateSpec> state;
  // False: an element's update depends on this element alone, so that ranks may share a parameter. True: the update
  // needs the whole matrix, which one rank has.
  bool whole_matrices = false;
  void (*update)(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes);
  // Upper bound on the scratch bytes of `update` for a parameter; null: none.
  size_t (*scratch)(const Shape& shape, DType activation) = nullptr;
};

// The optimizer of a parameter of `shape` in block `layer` (-1: outside the blocks). With `muon`, Muon updates the
// blocks' matrices, and AdamW the embeddings, the output head, norms and biases.
const Optimizer& optimizer_for(OptimizerName name, const Shape& shape, int64_t layer);

// A tensor in which a parameter's state is stored.
struct StateTensor {
  std::string name;   // "moment1", "moment1_scales"
  Tensor tensor;      // without memory in the result of state_layout()
  int64_t block = 1;  // parameter elements per element of `tensor`: n of them need ceil(n / block)
};

// The tensors that hold the optimizer state of `shard_elements` elements of a parameter of `shape`, without memory.
// `type`: f32, bf16, or u8 for 8-bit states, which are for matrices: vectors keep f32. An 8-bit state is two tensors,
// NAME (u8 codes) and NAME_scales (f32, one for each block of 256 elements, ops/blockwise.h). A shard begins at a
// multiple of 256. State of a whole parameter has the parameter's shape; state of a shard is flat.
std::vector<StateTensor> state_layout(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements,
                                      DType type);

// Bytes of these tensors in an arena.
size_t state_bytes(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements, DType type);

// Updates the parameter, whose `state` is in these tensors in place of `parameter.state`.
void run_update(ops::Context& context, const Optimizer& optimizer, std::span<const StateTensor> state,
                const ParameterUpdate& parameter, const UpdateAttributes& attributes);

// Scratch bytes of run_update: 8-bit states take none, they are decoded and encoded block by block.
size_t update_bytes(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements, DType activation);

}  // namespace ingot::train
