#include "nn/attention.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/rope.h"

namespace ingot::nn {

ops::AttentionAttributes Attention::attributes() const {
  return {heads, kv_heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

void Attention::forward(Pass& pass, BlockState& state) const {
  const TokenBatch& batch = pass.batch;
  q.forward(pass, state.q, state.attention_normed);
  k.forward(pass, state.k, state.attention_normed);
  v.forward(pass, state.v, state.attention_normed);
  ops::rope(pass.ops, state.q, state.q, batch.positions, frequencies, {.heads = heads});
  ops::rope(pass.ops, state.k, state.k, batch.positions, frequencies, {.heads = kv_heads});
  if (pass.cache) {
    const ops::KvPages& pages = pass.cache->layers[static_cast<size_t>(layer)];
    ops::kv_store(pass.ops, pages, state.k, state.v, pass.cache->slots);
    ops::paged_attention(pass.ops, state.attended, state.q, pages, pass.cache->layout, attributes());
  } else {
    ops::attention(pass.ops, state.attended, pass.training ? state.lse : Tensor{}, state.q, state.k, state.v,
                   batch.offsets, attributes());
  }
  ops::scale(pass.ops, state.middle, state.input, 1);
  o.forward(pass, state.middle, state.attended, true);
}

void Attention::backward(Pass& pass, const Tensor& dnormed, const Tensor& dstream, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor dq = scratch.take(state.q.dtype, state.q.shape);
  const Tensor dk = scratch.take(state.k.dtype, state.k.shape);
  const Tensor dv = scratch.take(state.v.dtype, state.v.shape);
  {
    const Arena::Scope inner(scratch);
    const Tensor dattended = scratch.take(state.attended.dtype, state.attended.shape);
    o.backward(pass, dattended, dstream, state.attended, false);
    ops::attention_backward(pass.ops, dq, dk, dv, dattended, {state.attended, state.lse, state.q, state.k, state.v},
                            pass.batch.offsets, attributes());
  }
  ops::rope(pass.ops, dq, dq, pass.batch.positions, frequencies, {.heads = heads, .inverse = true});
  ops::rope(pass.ops, dk, dk, pass.batch.positions, frequencies, {.heads = kv_heads, .inverse = true});
  q.backward(pass, dnormed, dq, state.attention_normed, false);
  k.backward(pass, dnormed, dk, state.attention_normed, true);
  v.backward(pass, dnormed, dv, state.attention_normed, true);
}

}  // namespace ingot::nn
