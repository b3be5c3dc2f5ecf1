#include "nn/attention.h"

#include <algorithm>

#include "nn/sliced_sum.h"
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

// dx = the gradient of x, of the norm of every head: x [T, heads D], `statistics` [T heads]. Where sums are taken in
// slices, the gradient of the norm's weight is a contribution of every slice's heads.
void norm_backward(Pass& pass, const Norm& norm, const Tensor& dx, const Tensor& dy, const Tensor& x,
                   const NormStatistics& statistics) {
  if (!pass.tp.sliced() || !norm.has_trainable()) {
    return norm.backward(pass, rows_of(norm, dx), rows_of(norm, dy), rows_of(norm, x), statistics, false);
  }
  const int64_t tokens = x.shape[0], slices = pass.tp.own_slices, features = x.shape[1] / slices;
  const int64_t heads = statistics.rstd.elements() / tokens / slices;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const Arena::Scope scope(pass.ops.scratch);
    const auto part_of = [&](const Tensor& all, int64_t width) {
      return columns_of(pass, all, {slice * width, (slice + 1) * width});
    };
    const auto of_heads = [&](const Tensor& each) {
      return each ? part_of(each.reshape(Shape{tokens, heads * slices}), heads).reshape(Shape{tokens * heads}) : each;
    };
    const NormStatistics part{.rstd = of_heads(statistics.rstd), .mean = of_heads(statistics.mean)};
    const Tensor dy_part = part_of(dy, features), x_part = part_of(x, features);
    const Tensor dx_part = slices == 1 ? dx : pass.ops.scratch.allocate(dx.dtype, x_part.shape);
    norm.backward(pass, rows_of(norm, dx_part), rows_of(norm, dy_part), rows_of(norm, x_part), part, false);
    if (slices > 1) ops::scatter_columns(pass.ops, dx, dx_part, {.width = features, .offset = slice * features});
  }
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
    norm_backward(pass, q_norm, state.q, dq, state.q_input, state.q_statistics);
    dq = state.q;
  }
  if (k_norm) {
    norm_backward(pass, k_norm, state.k, dk, state.k_input, state.k_statistics);
    dk = state.k;
  }
  if (!qkv && pass.tp.sliced()) {
    const Linear* const layers[] = {&q, &k, &v};
    const Tensor gradients[] = {dq, dk, dv};
    return Linear::backward_sliced(pass, dnormed, layers, gradients, state.attention_normed);
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
  if (pass.tp.sliced()) {
    const Linear* const layers[] = {&qkv};
    return Linear::backward_sliced(pass, dnormed, layers, {&fused, 1}, state.attention_normed);
  }
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
  in += Linear::backward_sliced_bytes(tokens, spec.fused_qkv ? q + 2 * kv : q, hidden, shape);
  const size_t out = Linear::bytes(tokens, hidden, q, shape) + Linear::sum_bytes(tokens, hidden, shape) +
                     Linear::sliced_bytes(tokens, hidden, q, shape);
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
  if (spec.qk_norm == spec::QkNorm::head) {
    norm = Norm::bytes(tokens * spec.heads, spec.head_dim);
    const int64_t slices = shape.slices / shape.tp;
    if (slices > 1) {
      norm += 3 * shape.matrix_bytes(tokens, q / slices) +
              2 * Arena::footprint(DType::f32, Shape{tokens * spec.heads / slices});
    }
  }
  if (spec.qk_norm == spec::QkNorm::all_heads) norm = Norm::bytes(tokens, q);
  const size_t attention =
      ops::attention_backward_bytes(tokens, shape.longest, spec.heads, spec.head_dim, shape.threads);
  return gradients + std::max(attention_context, fused) +
         std::max({norm, attention, forward_bytes(spec, hidden, shape)});
}

}  // namespace ingot::nn
