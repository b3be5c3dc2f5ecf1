#include "nn/attention.h"

#include <algorithm>

#include "nn/transfer.h"
#include "ops/attention_bytes.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace ingot::nn {

namespace {

// x reshaped to rows as wide as the norm.
Tensor rows_of(const Norm& norm, const Tensor& x) {
  const int64_t features = norm.weight.elements();
  return x.reshape(Shape{x.elements() / features, features});
}

}  // namespace

// The columns of q, k and v in the fused layer's output.
std::array<ops::ColumnsAttributes, 3> Attention::columns() const {
  const int64_t d = attributes.head_dim;
  if (qkv_by_head) {
    const ops::ColumnsAttributes head{.groups = attributes.heads, .width = d, .stride = 3 * d};
    std::array<ops::ColumnsAttributes, 3> parts = {head, head, head};
    parts[1].offset = d;
    parts[2].offset = 2 * d;
    return parts;
  }
  const int64_t queries = attributes.heads * d;
  const int64_t keys = attributes.kv_heads * d;
  return {{{.width = queries}, {.width = keys, .offset = queries}, {.width = keys, .offset = queries + keys}}};
}

// Fills state.q, k and v, with norms and rope applied.
void Attention::project(Pass& pass, BlockState& state) const {
  const Tensor& raw_q = q_norm ? state.q_input : state.q;
  const Tensor& raw_k = k_norm ? state.k_input : state.k;
  if (qkv) {
    Arena& scratch = pass.ops.scratch;
    const Arena::Scope scope(scratch);
    const Shape shape{state.q.rows(), qkv.weight.out};
    const Tensor fused = state.qkv ? state.qkv : scratch.allocate(state.q.dtype, shape);
    qkv.forward(pass, fused, state.attention_normed);
    Tensor clamped = fused;
    if (clip > 0) {
      clamped = scratch.allocate(fused.dtype, shape);
      ops::clamp(pass.ops, clamped, fused, clip);
    }
    const auto [q_columns, k_columns, v_columns] = columns();
    ops::gather_columns(pass.ops, raw_q, clamped, q_columns);
    ops::gather_columns(pass.ops, raw_k, clamped, k_columns);
    ops::gather_columns(pass.ops, state.v, clamped, v_columns);
  } else {
    const Linear* const layers[] = {&q, &k, &v};
    const Tensor outputs[] = {raw_q, raw_k, state.v};
    Linear::forward_each(pass, layers, outputs, state.attention_normed);
  }
  if (q_norm) q_norm.forward(pass, rows_of(q_norm, state.q), state.q_statistics, rows_of(q_norm, raw_q));
  if (k_norm) k_norm.forward(pass, rows_of(k_norm, state.k), state.k_statistics, rows_of(k_norm, raw_k));
  rotate(pass, state.q, state.k, false);
}

void Attention::rotate(Pass& pass, const Tensor& queries, const Tensor& keys, bool inverse) const {
  if (!frequencies) return;
  const Tensor& positions = pass.batch.positions;
  ops::rope(pass.ops, queries, queries, positions, frequencies, {.heads = attributes.heads, .inverse = inverse});
  ops::rope(pass.ops, keys, keys, positions, frequencies, {.heads = attributes.kv_heads, .inverse = inverse});
}

void Attention::forward(Pass& pass, const Tensor& out, BlockState& state, bool accumulate) const {
  project(pass, state);
  if (pass.cache) {
    const ops::KvPages& pages = pass.cache->layers[static_cast<size_t>(layer)];
    ops::kv_store(pass.ops, pages, state.k, state.v, pass.cache->slots);
    ops::paged_attention(pass.ops, state.attention_context, state.q, pages, pass.cache->layout, attributes);
  } else {
    ops::attention(pass.ops, state.attention_context, pass.training ? state.lse : Tensor{}, state.q, state.k, state.v,
                   pass.batch.offsets, attributes);
  }
  if (out) o.forward(pass, out, state.attention_context, accumulate);
}

void Attention::backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  Tensor dq = scratch.allocate(state.q.dtype, state.q.shape);
  Tensor dk = scratch.allocate(state.k.dtype, state.k.shape);
  const Tensor dv = scratch.allocate(state.v.dtype, state.v.shape);
  {
    const Arena::Scope inner(scratch);
    const Tensor dattended = scratch.allocate(state.attention_context.dtype, state.attention_context.shape);
    o.backward(pass, dattended, dout, state.attention_context, false);
    ops::attention_backward(pass.ops, dq, dk, dv, dattended,
                            {state.attention_context, state.lse, state.q, state.k, state.v}, pass.batch.offsets,
                            attributes);
  }
  rotate(pass, dq, dk, true);
  if (q_norm) {  // q and k are not needed any more: their memory is reused for the gradients
    q_norm.backward(pass, rows_of(q_norm, state.q), rows_of(q_norm, dq), rows_of(q_norm, state.q_input),
                    state.q_statistics, false);
    dq = state.q;
  }
  if (k_norm) {
    k_norm.backward(pass, rows_of(k_norm, state.k), rows_of(k_norm, dk), rows_of(k_norm, state.k_input),
                    state.k_statistics, false);
    dk = state.k;
  }
  if (!qkv) {
    q.backward(pass, dnormed, dq, state.attention_normed, false);
    k.backward(pass, dnormed, dk, state.attention_normed, true);
    v.backward(pass, dnormed, dv, state.attention_normed, true);
    if (dnormed) sum_over_ranks(pass, dnormed);
    return;
  }
  const Tensor fused = scratch.allocate(dq.dtype, Shape{dq.rows(), qkv.weight.out});
  const auto [q_columns, k_columns, v_columns] = columns();
  ops::scatter_columns(pass.ops, fused, dq, q_columns);
  ops::scatter_columns(pass.ops, fused, dk, k_columns);
  ops::scatter_columns(pass.ops, fused, dv, v_columns);
  if (clip > 0) ops::clamp_backward(pass.ops, fused, fused, state.qkv, clip);
  qkv.backward(pass, dnormed, fused, state.attention_normed, false);
  if (dnormed) sum_over_ranks(pass, dnormed);
}

size_t Attention::forward_bytes(const spec::Attention& spec, int64_t hidden, const PassShape& shape) {
  const int64_t q = spec.query_width();
  const int64_t kv = spec.key_width();
  const int64_t tokens = shape.tokens;
  size_t in = 0;
  if (spec.fused_qkv) {
    in = shape.matrix_bytes(tokens, q + 2 * kv) + Linear::bytes(tokens, q + 2 * kv, hidden, shape);
  } else {
    in = std::max(Linear::bytes(tokens, q, hidden, shape), Linear::bytes(tokens, kv, hidden, shape));
  }
  const size_t out = Linear::bytes(tokens, hidden, q, shape) + Linear::sum_bytes(tokens, hidden, shape);
  return std::max({in, out, ops::attention_bytes(tokens, shape.longest, spec.heads, spec.head_dim, shape.threads)});
}

size_t Attention::backward_bytes(const spec::Attention& spec, int64_t hidden, const PassShape& shape) {
  const int64_t q = spec.query_width();
  const int64_t kv = spec.key_width();
  const int64_t tokens = shape.tokens;
  const size_t gradients = shape.matrix_bytes(tokens, q) + 2 * shape.matrix_bytes(tokens, kv);
  const size_t attention_context = shape.matrix_bytes(tokens, q);
  const size_t fused = spec.fused_qkv ? shape.matrix_bytes(tokens, q + 2 * kv) : 0;
  size_t norm = 0;
  if (spec.qk_norm == spec::QkNorm::head) norm = Norm::bytes(tokens * spec.heads, spec.head_dim);
  if (spec.qk_norm == spec::QkNorm::all_heads) norm = Norm::bytes(tokens, q);
  const size_t attention =
      ops::attention_backward_bytes(tokens, shape.longest, spec.heads, spec.head_dim, shape.threads);
  return gradients + std::max(attention_context, fused) +
         std::max({norm, attention, forward_bytes(spec, hidden, shape)});
}

}  // namespace ingot::nn
