#include "nn/mlp.h"

#include <algorithm>

#include "nn/row_exchange.h"
#include "ops/linear_glu.h"
#include "ops/linear_group_bytes.h"

namespace ingot::nn {

void Mlp::recompute_activations(Pass& pass, BlockState& state) const {
  if (gate) {
    ops::glu(pass.ops, state.activated, state.gate, state.up, activation);
  } else {
    ops::activation(pass.ops, state.activated, state.up, activation);
  }
}

// Sets state.activated and, where a backward follows, state.gate and up.
void Mlp::fill(Pass& pass, BlockState& state) const {
  if (gate) {
    const Linear* const layers[] = {&gate, &up};
    if (Linear::are_gemms(pass, layers, state.mlp_normed.rows())) {
      return ops::linear_glu(pass.ops, state.activated, state.mlp_normed,
                             {gate.weight, up.weight, state.gate, state.up},
                             {Linear::group_attributes(pass, gate), activation});
    }
    const Tensor outputs[] = {state.gate, state.up};
    Linear::forward_each(pass, layers, outputs, state.mlp_normed);
  } else {
    up.forward(pass, state.up, state.mlp_normed);
  }
  recompute_activations(pass, state);
}

void Mlp::forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual) const {
  fill(pass, state);
  if (out) down.forward(pass, out, state.activated, residual);
}

void Mlp::forward_part(Pass& pass, const Tensor& out, BlockState& state) const {
  fill(pass, state);
  down.forward_part(pass, out, state.activated);
}

void Mlp::backward_activations(Pass& pass, const Tensor& dout, BlockState& state) const {
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor dactivated = pass.ops.scratch.allocate(state.activated.dtype, state.activated.shape);
  down.backward(pass, dactivated, dout, state.activated, false);
  if (gate) {
    ops::glu_backward(pass.ops, state.gate, state.up, dactivated, state.gate, state.up, activation);
  } else {
    ops::activation_backward(pass.ops, state.up, dactivated, state.up, activation);
  }
}

void Mlp::backward_part(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const {
  backward_activations(pass, dout, state);
  if (gate) gate.backward(pass, dnormed, state.gate, state.mlp_normed, false);
  up.backward(pass, dnormed, state.up, state.mlp_normed, static_cast<bool>(gate));
}

void Mlp::backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const {
  if (!pass.tp.sliced()) {
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor all = memory_of_all_rows(pass, dnormed, dout.shape[0]);
    backward_part(pass, all, dout, state);
    return sum_to_own_rows(pass, dnormed, all);
  }
  backward_activations(pass, dout, state);
  const Linear* const layers[] = {&up, &gate};
  const Tensor gradients[] = {state.up, state.gate};
  const size_t count = gate ? 2 : 1;
  Linear::backward_sliced(pass, dnormed, std::span(layers).first(count), std::span(gradients).first(count),
                          state.mlp_normed);
}

size_t Mlp::forward_bytes(const spec::Dense& spec, int64_t hidden, const PassShape& shape, int64_t rows) {
  size_t in = Linear::bytes(rows, spec.features, hidden, shape) +
              Linear::backward_sliced_bytes(rows, spec.features, hidden, shape);
  if (shape.cached && spec.gated && (spec.bias || shape.adapter_rank > 0)) {  // gate and up that are not gemms alone
    in = std::max(in, ops::linear_group_bytes(rows, 2 * spec.features, size_of(shape.activation), shape.host_visible));
  }
  const size_t out = Linear::bytes(rows, hidden, spec.features, shape) + Linear::sum_bytes(rows, hidden, shape) +
                     Linear::sliced_bytes(rows, hidden, spec.features, shape);
  return std::max(in, out);
}

size_t Mlp::backward_bytes(const spec::Dense& spec, int64_t hidden, const PassShape& shape, int64_t rows) {
  return shape.matrix_bytes(rows, spec.features) + 2 * all_rows_bytes(rows, hidden, shape) +
         forward_bytes(spec, hidden, shape, rows);
}

}  // namespace ingot::nn
