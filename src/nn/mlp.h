// The gated MLP of llama, between the norm before it and the residual after it.
#pragma once

#include "nn/block_state.h"
#include "nn/linear.h"

namespace ingot::nn {

struct Mlp {
  Linear gate, up, down;

  // Fills state.gate, up and activated from state.mlp_normed; out [T, H] = state.middle + down(activated),
  // absent when only the state is to be filled again.
  void forward(Pass& pass, const Tensor& out, BlockState& state) const;

  // dstream [T, H]: the gradient of out, unchanged. dnormed [T, H] is assigned the gradient of state.mlp_normed.
  // state.gate and state.up are overwritten with their own gradients.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dstream, BlockState& state) const;
};

}  // namespace ingot::nn
