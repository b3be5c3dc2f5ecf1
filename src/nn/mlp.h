// The MLP of a block, with or without a gate, from the output of the norm before it to the output layer.
#pragma once

#include "nn/block_state.h"
#include "nn/linear.h"
#include "ops/glu.h"

namespace ingot::nn {

struct Mlp {
  Linear gate;  // absent without a gate
  Linear up, down;
  ops::Activation activation = ops::Activation::silu;

  // Fills state.activated and, where a backward follows, state.gate and up, from state.mlp_normed. out [T, H] =
  // down(activated), plus `residual` unless it is absent (as in Linear::forward); absent when only the state is to be
  // filled.
  void forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual = {}) const;
  // The same without the sum over tensor-parallel ranks: out is this rank's part.
  void forward_part(Pass& pass, const Tensor& out, BlockState& state) const;
  // Fills only state.activated, from state.gate and up.
  void recompute_activations(Pass& pass, BlockState& state) const;

  // dout [T, H]: the gradient of down(activated); not modified. dnormed [T, H] is assigned the gradient of
  // state.mlp_normed. state.gate and state.up are overwritten with their gradients.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;
  // The same without the sum over tensor-parallel ranks: dnormed is this rank's part.
  void backward_part(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // All of them, also those that are absent.
  std::vector<Linear*> linears() { return {&gate, &up, &down}; }

  // Scratch bytes of forward and of backward for `rows`.
  static size_t forward_bytes(const spec::Dense& spec, int64_t hidden, const PassShape& shape, int64_t rows);
  static size_t backward_bytes(const spec::Dense& spec, int64_t hidden, const PassShape& shape, int64_t rows);

 private:
  void fill(Pass& pass, BlockState& state) const;
  // Overwrites state.gate and state.up with their gradients.
  void backward_activations(Pass& pass, const Tensor& dout, BlockState& state) const;
};

}  // namespace ingot::nn
