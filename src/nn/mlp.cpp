#include "nn/mlp.h"

#include "ops/elementwise.h"
#include "ops/glu.h"

namespace ingot::nn {

void Mlp::forward(Pass& pass, const Tensor& out, BlockState& state) const {
  gate.forward(pass, state.gate, state.mlp_normed);
  up.forward(pass, state.up, state.mlp_normed);
  ops::glu(pass.ops, state.activated, state.gate, state.up, ops::Activation::silu);
  if (!out) return;
  ops::scale(pass.ops, out, state.middle, 1);
  down.forward(pass, out, state.activated, true);
}

void Mlp::backward(Pass& pass, const Tensor& dnormed, const Tensor& dstream, BlockState& state) const {
  {
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor dactivated = pass.ops.scratch.take(state.activated.dtype, state.activated.shape);
    down.backward(pass, dactivated, dstream, state.activated, false);
    ops::glu_backward(pass.ops, state.gate, state.up, dactivated, state.gate, state.up, ops::Activation::silu);
  }
  gate.backward(pass, dnormed, state.gate, state.mlp_normed, false);
  up.backward(pass, dnormed, state.up, state.mlp_normed, true);
}

}  // namespace ingot::nn
