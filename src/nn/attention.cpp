#include "nn/attention.h"

#include <algorithm>

#include "base/error.h"
#include "nn/context_chunks.h"
#include "nn/head_exchange.h"
#include "nn/key_value_gather.h"
#include "nn/key_value_ring.h"
#include "nn/row_exchange.h"
#include "nn/sliced_sum.h"
#include "ops/attention_bytes.h"
#include "ops/elementwise.h"
#include "ops/linear_group_bytes.h"
#include "ops/rope.h"
#include "ops/rope_kv_store.h"

namespace ingot::nn {

namespace {

// x reshaped to rows as wide as the norm.
Tensor rows_of(const Norm& norm, const Tensor& x) {
  const int64_t features = norm.weight.elements();
  return x.reshape(Shape{x.elements() / features, features});
}

// Whether a rank computes attention of its own queries, of one of its two chunks in a call.
bool has_chunks(const PassShape& shape) { return shape.cp > 1 && shape.cp_comm_type != spec::CpCommType::a2a; }

// Queries and heads for which a rank computes attention in one call (nn/head_exchange.h, nn/context_chunks.h).
struct OwnHeads {
  int64_t rows, heads, kv_heads;
};
OwnHeads own_heads(const spec::Attention& spec, const PassShape& shape) {
  if (has_chunks(shape)) return {shape.tokens / 2, spec.heads, spec.kv_heads};
  return {shape.tokens * shape.cp, spec.heads / shape.cp, std::max<int64_t>(1, spec.kv_heads / shape.cp)};
}

// Max keys of a sequence in one call.
int64_t longest_of_call(const PassShape& shape) {
  const bool passes = shape.cp > 1 && shape.cp_comm_type == spec::CpCommType::p2p;  // chunk by chunk
  return passes ? std::min(shape.longest, shape.tokens / 2) : shape.longest;
}

// Scratch bytes of what attention, in forward or in backward, exchanges and computes over a rank's heads, where `op` is
// what ops::attention or ops::attention_backward needs. `copies` and `kv_copies`: of queries, and of keys or values
// where ranks share them.
size_t exchanged_bytes(const spec::Attention& spec, const PassShape& shape, size_t op, int64_t copies,
                       int64_t kv_copies) {
  const OwnHeads own = own_heads(spec, shape);
  const size_t queries = shape.matrix_bytes(own.rows, own.heads * spec.head_dim);
  const size_t keys = shape.matrix_bytes(own.rows, own.kv_heads * spec.head_dim);
  const bool shared = spec.kv_heads % shape.cp != 0;
  const size_t exchange = std::max(HeadExchange::scratch_bytes(queries, shape.cp, spec.heads),
                                   HeadExchange::scratch_bytes(keys, shape.cp, spec.kv_heads));
  return static_cast<size_t>(copies) * queries + (shared ? static_cast<size_t>(kv_copies) * keys : 0) +
         std::max(op, exchange);
}

// The same with Pass::key_values: keys and values of all rows, and in backward their gradients for each chunk.
size_t gathered_bytes(const spec::Attention& spec, const PassShape& shape, size_t op, bool backward) {
  const size_t keys = shape.matrix_bytes(shape.tokens * shape.cp, spec.key_width());
  const size_t gather = KeyValueGather::gather_bytes(keys);
  if (!backward) return 2 * keys + std::max(op, gather);
  return 2 * keys + std::max(2 * keys + std::max(2 * keys + op, gather), KeyValueGather::sum_bytes(keys));
}

// What attend() or attend_backward() need.
size_t attend_bytes(const spec::Attention& spec, const PassShape& shape, size_t op, bool backward) {
  if (shape.cp == 1) return op;
  switch (shape.cp_comm_type) {
    case spec::CpCommType::a2a: return exchanged_bytes(spec, shape, op, backward ? 1 : 0, backward ? 4 : 2);
    case spec::CpCommType::allgather: return gathered_bytes(spec, shape, op, backward);
    case spec::CpCommType::p2p:
      return backward ? KeyValueRing::backward_bytes(spec, shape.tokens, shape.activation, op)
                      : KeyValueRing::forward_bytes(spec, shape.tokens, shape.activation, op);
  }
  throw_error(ErrorKind::internal, "no such communication of context-parallel ranks");
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

// Fills state.q, k and v, with norms applied.
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
    const Tensor parts[] = {raw_q, raw_k, state.v};
    ops::gather_columns(pass.ops, parts, clamped, columns());
  } else {
    const Linear* const layers[] = {&q, &k, &v};
    const Tensor outputs[] = {raw_q, raw_k, state.v};
    Linear::forward_each(pass, layers, outputs, state.attention_normed);
  }
  if (q_norm) q_norm.forward(pass, rows_of(q_norm, state.q), state.q_statistics, rows_of(q_norm, raw_q));
  if (k_norm) k_norm.forward(pass, rows_of(k_norm, state.k), state.k_statistics, rows_of(k_norm, raw_k));
}

void Attention::rotate(Pass& pass, const Tensor& queries, const Tensor& keys, bool inverse) const {
  if (!frequencies) return;
  const Tensor& positions = pass.batch.positions;
  ops::rope(pass.ops, queries, queries, positions, frequencies, {.heads = attributes.heads, .inverse = inverse});
  ops::rope(pass.ops, keys, keys, positions, frequencies, {.heads = attributes.kv_heads, .inverse = inverse});
}

// What a rank computes attention with for its heads.
ops::AttentionAttributes Attention::attributes_of(const HeadExchange& exchange) const {
  ops::AttentionAttributes own = attributes;
  own.heads = exchange.own_heads(attributes.heads);
  own.kv_heads = exchange.own_heads(attributes.kv_heads);
  if (own.slopes) own.slopes = attributes.slopes.slice(exchange.rank() * own.heads, (exchange.rank() + 1) * own.heads);
  return own;
}

// The memory for a rank's heads of x [T, `heads` D]: that of x, or new where ranks share heads.
Tensor Attention::memory_of_heads(Pass& pass, const Tensor& x, int64_t heads) const {
  const int64_t rows = x.shape[0] * pass.cp->ranks();
  const Shape shape{rows, pass.cp->own_heads(heads) * attributes.head_dim};
  return heads % pass.cp->ranks() == 0 ? x.reshape(shape) : pass.ops.scratch.allocate(x.dtype, shape);
}

void Attention::attend_to_gathered(Pass& pass, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  KeyValueGather& gather = *pass.key_values;
  const Shape shape{state.k.shape[0] * gather.ranks(), state.k.shape[1]};
  const Tensor keys = scratch.allocate(state.k.dtype, shape), values = scratch.allocate(state.v.dtype, shape);
  gather.gather(pass.ops, keys, state.k);
  gather.gather(pass.ops, values, state.v);
  ops::AttentionAttributes own = attributes;
  for (const int64_t i : {0, 1}) {
    own.first_query = gather.first_rows(state.q.shape[0] / 2)[static_cast<size_t>(i)];
    ops::attention(pass.ops, chunk_of(state.attention_context, i),
                   chunk_of_lse(pass.training ? state.lse : Tensor{}, i), chunk_of(state.q, i), keys, values,
                   pass.batch.offsets, own);
  }
}

void Attention::attend(Pass& pass, BlockState& state) const {
  if (pass.key_values != nullptr) return attend_to_gathered(pass, state);
  const Tensor lse = pass.training ? state.lse : Tensor{};
  if (pass.ring != nullptr) {
    const KeyValueRing::Rows rows{state.q, state.k, state.v, pass.batch.offsets};
    return pass.ring->attend(pass.ops, state.attention_context, lse, rows, attributes);
  }
  if (pass.cp == nullptr) {
    ops::attention(pass.ops, state.attention_context, lse, state.q, state.k, state.v, pass.batch.offsets, attributes);
    return;
  }
  const Arena::Scope scope(pass.ops.scratch);
  const ops::AttentionAttributes own = attributes_of(*pass.cp);
  const auto exchanged = [&](const Tensor& x, int64_t heads) {
    const Tensor out = memory_of_heads(pass, x, heads);
    pass.cp->to_heads(pass.ops, out, x, heads);
    return out;
  };
  const Tensor heads_q = exchanged(state.q, attributes.heads);
  const Tensor heads_k = exchanged(state.k, attributes.kv_heads);
  const Tensor heads_v = exchanged(state.v, attributes.kv_heads);
  const Tensor context = memory_of_heads(pass, state.attention_context, attributes.heads);
  ops::attention(pass.ops, context, lse ? lse.reshape(Shape{own.heads, heads_q.shape[0]}) : lse, heads_q, heads_k,
                 heads_v, pass.batch.offsets, own);
  pass.cp->to_rows(pass.ops, state.attention_context, context, attributes.heads);
}

void Attention::forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual) const {
  project(pass, state);
  if (pass.cache) {
    const ops::KvPages& pages = pass.cache->layers[static_cast<size_t>(layer)];
    if (frequencies) {
      ops::rope_kv_store(pass.ops, state.q, pages, state.k, state.v, pass.batch.positions, frequencies,
                         pass.cache->slots, {.heads = attributes.heads, .kv_heads = attributes.kv_heads});
    } else {
      ops::kv_store(pass.ops, pages, state.k, state.v, pass.cache->slots);
    }
    ops::paged_attention(pass.ops, state.attention_context, state.q, pages, pass.cache->layout, attributes);
  } else {
    rotate(pass, state.q, state.k, false);
    attend(pass, state);
  }
  if (out) o.forward(pass, out, state.attention_context, residual);
}

void Attention::attend_to_gathered_backward(Pass& pass, const Gradients& gradients, const Tensor& dcontext,
                                            const BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  KeyValueGather& gather = *pass.key_values;
  const Shape shape{state.k.shape[0] * gather.ranks(), state.k.shape[1]};
  const auto all_rows = [&] { return scratch.allocate(state.k.dtype, shape); };
  const Tensor dkeys = all_rows(), dvalues = all_rows();
  {
    const Arena::Scope inner(scratch);
    const Tensor keys = all_rows(), values = all_rows();
    gather.gather(pass.ops, keys, state.k);
    gather.gather(pass.ops, values, state.v);
    const Tensor second_dkeys = all_rows(), second_dvalues = all_rows();
    ops::AttentionAttributes own = attributes;
    for (const int64_t i : {0, 1}) {
      own.first_query = gather.first_rows(state.q.shape[0] / 2)[static_cast<size_t>(i)];
      ops::attention_backward(
          pass.ops, chunk_of(gradients.dq, i), i == 0 ? dkeys : second_dkeys, i == 0 ? dvalues : second_dvalues,
          chunk_of(dcontext, i),
          {chunk_of(state.attention_context, i), chunk_of_lse(state.lse, i), chunk_of(state.q, i), keys, values},
          pass.batch.offsets, own);
    }
    ops::add(pass.ops, dkeys, dkeys, second_dkeys);
    ops::add(pass.ops, dvalues, dvalues, second_dvalues);
  }
  gather.sum(pass.ops, gradients.dk, dkeys);
  gather.sum(pass.ops, gradients.dv, dvalues);
}

void Attention::attend_backward(Pass& pass, const Gradients& gradients, const Tensor& dcontext,
                                const BlockState& state) const {
  if (pass.key_values != nullptr) return attend_to_gathered_backward(pass, gradients, dcontext, state);
  const auto& [dq, dk, dv] = gradients;
  if (pass.ring != nullptr) {
    return pass.ring->attend_backward(pass.ops, {dq, dk, dv}, dcontext, state.attention_context, state.lse,
                                      {state.q, state.k, state.v, pass.batch.offsets}, attributes);
  }
  if (pass.cp == nullptr) {
    ops::attention_backward(pass.ops, dq, dk, dv, dcontext,
                            {state.attention_context, state.lse, state.q, state.k, state.v}, pass.batch.offsets,
                            attributes);
    return;
  }
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  HeadExchange& exchange = *pass.cp;
  const ops::AttentionAttributes own = attributes_of(exchange);
  const int64_t heads = attributes.heads, kv_heads = attributes.kv_heads;
  // The output is still needed as rows, for the gradient of the output projection's weight.
  const Tensor context = scratch.allocate(dcontext.dtype, memory_of_heads(pass, dcontext, heads).shape);
  exchange.to_heads(pass.ops, context, state.attention_context, heads);
  const Tensor dheads = memory_of_heads(pass, dcontext, heads);
  exchange.to_heads(pass.ops, dheads, dcontext, heads);
  // As forward has left them, or again where ranks share heads.
  const Tensor heads_q = memory_of_heads(pass, state.q, heads);
  const Tensor heads_k = memory_of_heads(pass, state.k, kv_heads), heads_v = memory_of_heads(pass, state.v, kv_heads);
  if (heads_k.data != state.k.data) {
    exchange.to_heads(pass.ops, heads_k, state.k, kv_heads);
    exchange.to_heads(pass.ops, heads_v, state.v, kv_heads);
  }
  const Tensor heads_dq = memory_of_heads(pass, dq, heads);
  const Tensor heads_dk = memory_of_heads(pass, dk, kv_heads), heads_dv = memory_of_heads(pass, dv, kv_heads);
  const Tensor lse = state.lse.reshape(Shape{own.heads, heads_q.shape[0]});
  ops::attention_backward(pass.ops, heads_dq, heads_dk, heads_dv, dheads, {context, lse, heads_q, heads_k, heads_v},
                          pass.batch.offsets, own);
  exchange.to_rows(pass.ops, dq, heads_dq, heads);
  exchange.to_rows(pass.ops, dk, heads_dk, kv_heads);
  exchange.to_rows(pass.ops, dv, heads_dv, kv_heads);
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
    attend_backward(pass, {dq, dk, dv}, dattended, state);
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
    const Tensor all = memory_of_all_rows(pass, dnormed, dq.rows());
    q.backward(pass, all, dq, state.attention_normed, false);
    k.backward(pass, all, dk, state.attention_normed, true);
    v.backward(pass, all, dv, state.attention_normed, true);
    if (dnormed) sum_to_own_rows(pass, dnormed, all);
    return;
  }
  const Tensor fused = scratch.allocate(dq.dtype, Shape{dq.rows(), qkv.weight.out});
  const Tensor gradients[] = {dq, dk, dv};
  ops::scatter_columns(pass.ops, fused, gradients, columns());
  if (clip > 0) ops::clamp_backward(pass.ops, fused, fused, state.qkv, clip);
  if (pass.tp.sliced()) {
    const Linear* const layers[] = {&qkv};
    return Linear::backward_sliced(pass, dnormed, layers, {&fused, 1}, state.attention_normed);
  }
  const Tensor all = memory_of_all_rows(pass, dnormed, dq.rows());
  qkv.backward(pass, all, fused, state.attention_normed, false);
  if (dnormed) sum_to_own_rows(pass, dnormed, all);
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
    if (shape.cached) {
      in = std::max(in, ops::linear_group_bytes(tokens, q + 2 * kv, size_of(shape.activation), shape.host_visible));
    }
  }
  in += Linear::backward_sliced_bytes(tokens, spec.fused_qkv ? q + 2 * kv : q, hidden, shape);
  const size_t out = Linear::bytes(tokens, hidden, q, shape) + Linear::sum_bytes(tokens, hidden, shape) +
                     Linear::sliced_bytes(tokens, hidden, q, shape);
  const OwnHeads own = own_heads(spec, shape);
  const size_t op = ops::attention_bytes(own.rows, longest_of_call(shape), own.heads, spec.head_dim, shape.threads);
  return std::max({in, out, attend_bytes(spec, shape, op, false)});
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
  const OwnHeads own = own_heads(spec, shape);
  const int64_t queries = own.rows + (has_chunks(shape) ? ops::attention_cut_queries : 0);
  const size_t op =
      ops::attention_backward_bytes(queries, longest_of_call(shape), own.heads, spec.head_dim, shape.threads);
  return gradients + std::max(attention_context, fused) + 2 * all_rows_bytes(tokens, hidden, shape) +
         std::max({norm, attend_bytes(spec, shape, op, true), forward_bytes(spec, hidden, shape)});
}

}  // namespace ingot::nn
