// The MLP of a block, gated or plain: from the norm before it to the output layer.
#pragma once

#include "nn/block_state.h"
#include "nn/linear.h"
#include "ops/glu.h"

namespace ingot::nn {

struct Mlp {
  Linear gate;  // absent in a plain one
  Linear up, down;
  ops::Activation activation = ops::Activation::silu;

  // Fills state.gate, up and activated from state.mlp_normed; out [T, H] = down(activated), added to out with
  // `accumulate`, absent when only the state is to be filled again.
  void forward(Pass& pass, const Tensor& out, BlockState& state, bool accumulate) const;
  // Fills state.activated alone, from state.gate and up.
  void refill(Pass& pass, BlockState& state) const;

  // dout [T, H]: the gradient of down(activated), unchanged. dnormed [T, H] is assigned the gradient of
  // state.mlp_normed. state.gate and state.up are overwritten with their own gradients.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // Scratch of forward, and of backward, over `rows`.
  static size_t forward_bytes(const spec::ModelSpec& model, const PassShape& shape, int64_t rows);
  static size_t backward_bytes(const spec::ModelSpec& model, const PassShape& shape, int64_t rows);
};

}  // namespace ingot::nn
