#include "nn/key_value_ring.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "nn/context_chunks.h"
#include "ops/columns.h"
#include "ops/elementwise.h"

namespace ingot::nn {

namespace {

// Whether some query attends to some key.
bool any_attends(const spec::Range& queries, const spec::Range& keys, int64_t window) {
  return keys.begin < queries.end && (window == 0 || keys.end - 1 > queries.begin - window);
}

// Keys (0) or values (1), or their gradients, of both [2, T, N].
Tensor matrix_of(const Tensor& both, int64_t i) {
  return both.slice(i, i + 1).reshape(Shape{both.shape[1], both.shape[2]});
}

// Memory for the sums that become `x`: its own if it is f32.
Tensor sums_of(Arena& scratch, const Tensor& x) {
  return x.dtype == DType::f32 ? x : scratch.allocate(DType::f32, x.shape);
}
size_t sums_bytes(int64_t elements, DType dtype) {
  return dtype == DType::f32 ? 0 : Arena::footprint(DType::f32, Shape{elements});
}

void round_sums(ops::Context& context, const Tensor& x, const Tensor& sums) {
  if (sums.data != x.data) ops::scale(context, x, sums, 1);
}

// Of the keys and values that are here and that arrive, or of their gradients.
size_t messages_bytes(const spec::Attention& spec, int64_t tokens, DType dtype) {
  return 2 * Arena::footprint(dtype, Shape{2, tokens, spec.key_width()});
}

}  // namespace

KeyValueRing::KeyValueRing(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes)
    : ranks_(std::move(ranks)), workspace_(ranks_->make_workspace(workspace_bytes(bytes))) {}

size_t KeyValueRing::largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens) {
  int64_t width = 0;
  for (const spec::LayerSpec& layer : model.layers) width = std::max(width, layer.attention.split(tp).key_width());
  return static_cast<size_t>(2 * tokens * width) * size_of(DType::f32);
}

comm::DeviceCommunicator::PendingOperation KeyValueRing::pass_on(ops::Context& context, const Tensor& received,
                                                                 const Tensor& sent) {
  if (local_only_) {
    context.device.fill_zero(received.data, received.bytes());
    return nullptr;
  }
  const auto ranks = static_cast<size_t>(ranks_->size()), rank = static_cast<size_t>(ranks_->rank());
  std::vector<size_t> out_bytes(ranks), in_bytes(ranks);
  out_bytes[(rank + ranks - 1) % ranks] = received.bytes();
  in_bytes[(rank + 1) % ranks] = sent.bytes();
  if (traffic_ != nullptr) traffic_->add({spec::Axis::cp, spec::Collective::send}, static_cast<int64_t>(sent.bytes()));
  return ranks_->all_to_all(workspace_, received.data, out_bytes, sent.data, in_bytes);
}

void KeyValueRing::turn(ops::Context& context, const Rows& rows, const ops::AttentionAttributes& attributes,
                        FunctionRef<void(const Tensor& keys, const ChunkPair& pair)> compute,
                        FunctionRef<void()> end_step) {
  const Arena::Scope scope(context.scratch);
  const int64_t ranks = ranks_->size(), tokens = rows.k.shape[0], width = rows.k.shape[1], chunk = tokens / 2;
  const Shape shape{2, tokens, width};
  Tensor here = context.scratch.allocate(rows.k.dtype, shape), next = context.scratch.allocate(rows.k.dtype, shape);
  ops::gather_columns(context, matrix_of(here, 0), rows.k, {.width = width});
  ops::gather_columns(context, matrix_of(here, 1), rows.v, {.width = width});
  const std::array<int64_t, 2> own = first_rows(ranks_->rank(), ranks, chunk);
  for (int64_t step = 0; step < ranks; ++step) {
    const auto passing = step + 1 < ranks ? pass_on(context, next, here) : nullptr;
    const std::array<int64_t, 2> theirs = first_rows((ranks_->rank() - step + ranks) % ranks, ranks, chunk);
    for (const int64_t queries : {0, 1}) {
      for (const int64_t keys : {0, 1}) {
        ChunkPair pair{queries, keys, attributes};
        pair.attributes.first_query = own[static_cast<size_t>(queries)];
        pair.attributes.first_key = theirs[static_cast<size_t>(keys)];
        const spec::Range asking{pair.attributes.first_query, pair.attributes.first_query + chunk};
        const spec::Range asked{*pair.attributes.first_key, *pair.attributes.first_key + chunk};
        if (any_attends(asking, asked, attributes.window)) compute(here, pair);
      }
    }
    if (passing) passing->wait();
    std::swap(here, next);
    end_step();
  }
}

void KeyValueRing::attend(ops::Context& context, const Tensor& out, const Tensor& lse, const Rows& rows,
                          const ops::AttentionAttributes& attributes) {
  Arena& scratch = context.scratch;
  const Arena::Scope scope(scratch);
  const Tensor joined = sums_of(scratch, out);
  const Tensor joined_lse = lse ? lse : scratch.allocate(DType::f32, Shape{attributes.heads, out.shape[0]});
  std::array<bool, 2> has_results{};  // the chunks of queries: after the first step both have, of their own keys
  const auto compute = [&](const Tensor& keys, const ChunkPair& pair) {
    ops::AttentionAttributes own = pair.attributes;
    own.accumulate = std::exchange(has_results[static_cast<size_t>(pair.queries)], true);
    ops::attention(context, chunk_of(joined, pair.queries), chunk_of_lse(joined_lse, pair.queries),
                   chunk_of(rows.q, pair.queries), chunk_of(matrix_of(keys, 0), pair.keys),
                   chunk_of(matrix_of(keys, 1), pair.keys), rows.offsets, own);
  };
  turn(context, rows, attributes, compute, [] {});
  round_sums(context, out, joined);
}

void KeyValueRing::attend_backward(ops::Context& context, const Gradients& gradients, const Tensor& dout,
                                   const Tensor& out, const Tensor& lse, const Rows& rows,
                                   const ops::AttentionAttributes& attributes) {
  Arena& scratch = context.scratch;
  const Arena::Scope scope(scratch);
  const Tensor dq = sums_of(scratch, gradients.dq);
  context.device.fill_zero(dq.data, dq.bytes());
  const Shape shape{2, rows.k.shape[0], rows.k.shape[1]};
  Tensor here = scratch.allocate(DType::f32, shape), next = scratch.allocate(DType::f32, shape);
  context.device.fill_zero(here.data, here.bytes());
  const auto compute = [&](const Tensor& keys, const ChunkPair& pair) {
    ops::AttentionAttributes own = pair.attributes;
    own.accumulate = true;
    ops::attention_backward(
        context, chunk_of(dq, pair.queries), chunk_of(matrix_of(here, 0), pair.keys),
        chunk_of(matrix_of(here, 1), pair.keys), chunk_of(dout, pair.queries),
        {chunk_of(out, pair.queries), chunk_of_lse(lse, pair.queries), chunk_of(rows.q, pair.queries),
         chunk_of(matrix_of(keys, 0), pair.keys), chunk_of(matrix_of(keys, 1), pair.keys)},
        rows.offsets, own);
  };
  // After the last step they reach their own rank.
  const auto pass_gradients = [&] {
    if (const auto passing = pass_on(context, next, here)) passing->wait();
    std::swap(here, next);
  };
  turn(context, rows, attributes, compute, pass_gradients);
  round_sums(context, gradients.dq, dq);
  ops::scale(context, gradients.dk, matrix_of(here, 0), 1);
  ops::scale(context, gradients.dv, matrix_of(here, 1), 1);
}

size_t KeyValueRing::forward_bytes(const spec::Attention& spec, int64_t tokens, DType activation, size_t op) {
  return sums_bytes(tokens * spec.query_width(), activation) + Arena::footprint(DType::f32, Shape{spec.heads, tokens}) +
         messages_bytes(spec, tokens, activation) + op;
}

size_t KeyValueRing::backward_bytes(const spec::Attention& spec, int64_t tokens, DType activation, size_t op) {
  return sums_bytes(tokens * spec.query_width(), activation) + messages_bytes(spec, tokens, DType::f32) +
         messages_bytes(spec, tokens, activation) + op;
}

}  // namespace ingot::nn
