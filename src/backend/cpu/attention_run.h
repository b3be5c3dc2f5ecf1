// The attention ops with the kernels of any level.
#pragma once

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "backend/cpu/attention_plan.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/simd/attention.h"
#include "ops/attention.h"

namespace ingot::cpu {

// The score parameters for the heads from `head` on.
inline AttentionScores scores_of(const ops::AttentionAttributes& attributes, int64_t head) {
  return {attributes.scale, attributes.softcap, attributes.window > 0 ? attributes.window : no_window,
          attributes.slopes ? attributes.slopes.as<float>() + head : nullptr};
}

inline ElementType type_of(const Tensor& q) {
  return q.dtype == DType::f32 ? ElementType::f32 : q.dtype == DType::bf16 ? ElementType::bf16 : ElementType::f16;
}

// The parts of a task that do not depend on where keys and values are: the queries of `slice`, of a sequence whose
// first query is row `start` of q and out.
inline AttentionForward forward_task(const Tensor& q, const Tensor& out, const ops::AttentionAttributes& attributes,
                                     const AttentionSlice& slice, int64_t start, void* scratch) {
  const int64_t d = attributes.head_dim;
  AttentionForward task{};
  task.type = type_of(q);
  task.q_stride = attributes.heads * d;
  task.kv_stride = attributes.kv_heads * d;
  const int64_t first_row = (start + slice.begin) * task.q_stride + slice.head * d;
  task.q = address(q, first_row);
  task.out = address(out, first_row);
  task.queries = slice.end - slice.begin;
  task.heads = slice.heads;
  task.kv_heads = slice.kv_heads;
  task.head_dim = d;
  task.scores = scores_of(attributes, slice.head);
  task.is_partial = attributes.first_key.has_value();
  task.accumulate = attributes.accumulate;
  task.scratch = scratch;
  return task;
}

template <const AttentionKernels& K>
void run_attention(ops::Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                   const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const int64_t queries = q.shape[0];
  const int64_t d = attributes.head_dim;
  const auto starts = pack_offsets(ops::Attention::name, offsets, queries, k.shape[0], attributes);
  std::vector<AttentionSlice> slices;
  std::vector<int64_t> first;  // token of each sequence that has a query
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const TokenRange own = queries_of(attributes, queries, starts[s], starts[s + 1]);
    first.push_back(own.begin);
    if (attributes.accumulate &&
        !any_attends(attributes, own, keys_of(attributes, k.shape[0], starts[s], starts[s + 1])))
      continue;
    cut_queries(slices, attributes, static_cast<int64_t>(s), own.end - own.begin, own.begin, 1);
  }
  longest_first(slices);
  run_slices(context, std::ssize(slices), d, [&](int64_t i, void* scratch) {
    const AttentionSlice& slice = slices[static_cast<size_t>(i)];
    const int64_t start = starts[static_cast<size_t>(slice.sequence)];
    const int64_t before = first[static_cast<size_t>(slice.sequence)];
    const int64_t row = start + before - attributes.first_query;  // of the sequence's first query
    const int64_t kv_head = slice.head / (attributes.heads / attributes.kv_heads);
    AttentionForward task = forward_task(q, out, attributes, slice, row, scratch);
    const TokenRange keys = keys_of(attributes, k.shape[0], start, starts[static_cast<size_t>(slice.sequence) + 1]);
    // Of the sequence's first key, if it has any.
    const int64_t key_row = keys.empty() ? 0 : start + keys.begin - attributes.first_key.value_or(0);
    const int64_t first_key = key_row * task.kv_stride + kv_head * d;
    task.lse = lse ? lse.as<float>() + slice.head * queries + row + slice.begin : nullptr;
    task.lse_stride = queries;
    task.k = address(k, first_key);
    task.v = address(v, first_key);
    task.page = 1;
    task.first_key = keys.begin;
    task.end_key = keys.end;
    task.first = before + slice.begin;
    K.forward(task);
  });
}

// A block of keys of one key/value head of a sequence, and the queries that attend to it.
struct KeyBlock {
  int64_t sequence, kv_head, begin, end;
  int64_t first, last;  // of the queries that attend to the block: their first block's begin, and one past the last one
  int64_t sums;  // index of the dq sums of the sequence's queries 0 .. 63, without them; a block covers all heads
  int64_t number;
  bool is_first, is_last;  // of those of the head in this sequence
  int64_t priority = 0;    // blocks() of this or of a later block of the same head, whichever has more
  int64_t blocks() const { return std::max<int64_t>(0, (last - first + attention_block - 1) / attention_block); }
  // Calls of backward_queries per head, up to and including the block at `begin_query`.
  int64_t steps(int64_t begin_query) const { return (begin_query - first) / attention_block + 1; }
};

// All key blocks. Those of one key/value head of a sequence are contiguous and in order. They end at multiples of
// attention_block, and where the keys end.
inline std::vector<KeyBlock> key_blocks(std::span<const int32_t> starts, int64_t queries, int64_t keys,
                                        const ops::AttentionAttributes& attributes) {
  std::vector<KeyBlock> blocks;
  int64_t sums = 0;  // of the sequences before
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const TokenRange own = queries_of(attributes, queries, starts[s], starts[s + 1]);
    const TokenRange attended = keys_of(attributes, keys, starts[s], starts[s + 1]);
    const int64_t first_sums = std::max<int64_t>(1, own.begin / attention_block);  // the first block needs none
    for (int64_t kv_head = 0; kv_head < attributes.kv_heads; ++kv_head) {
      for (int64_t begin = attended.begin, end = begin; begin < attended.end; begin = end) {
        end = std::min((begin / attention_block + 1) * attention_block, attended.end);
        const int64_t first = std::max(begin, own.begin) / attention_block * attention_block;
        const int64_t last = own.begin < own.end ? std::min(own.end, begin + max_keys(attributes, end - begin)) : first;
        blocks.push_back({static_cast<int64_t>(s), kv_head, begin, end, first, last, sums - first_sums,
                          std::ssize(blocks), begin == attended.begin, end == attended.end});
      }
    }
    if (own.end > own.begin) sums += std::max<int64_t>(0, (own.end - 1) / attention_block - first_sums + 1);
  }
  for (size_t i = blocks.size(); i-- > 0;) {
    blocks[i].priority = blocks[i].blocks();
    if (blocks[i].is_last) continue;
    blocks[i].priority = std::max(blocks[i].priority, blocks[i + 1].priority);
  }
  return blocks;
}

// One task per key block, the longest first; but none before those of earlier keys of the same head. dq of a query
// block is accumulated by several tasks in the order of their keys, so a task waits until the task of the preceding key
// block has added its part. That task started earlier, and can itself only wait for tasks that started even earlier, so
// there is no deadlock.
template <const AttentionKernels& K>
void run_backward(ops::Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                  const ops::AttentionSaved& saved, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const int64_t rows = dout.shape[0], keys = saved.k.shape[0];
  const int64_t d = attributes.head_dim;
  const int64_t group = attributes.heads / attributes.kv_heads;
  const auto starts = pack_offsets(ops::AttentionBackward::name, offsets, rows, keys, attributes);
  const int64_t tokens = starts.back();
  // Some queries may attend to none of these keys.
  if (attributes.first_key && !attributes.accumulate) context.device.fill_zero(dq.data, dq.bytes());
  const Arena::Scope scope(context.scratch);
  float* delta =
      static_cast<float*>(context.scratch.allocate_bytes(static_cast<size_t>(rows * attributes.heads) * sizeof(float)));
  auto* sums = static_cast<float*>(context.scratch.allocate_bytes(ops::attention_dq_accumulator_bytes(
      rows < tokens ? rows + ops::attention_cut_queries : rows, attributes.heads, d)));
  context.threads->parallel_for(0, rows, row_grain(attributes.heads * d), [&](int64_t lo, int64_t hi) {
    K.delta(dout.dtype == DType::bf16, dout.data, saved.out.data, delta, attributes.heads, d, rows, lo, hi);
  });

  const std::vector<KeyBlock> blocks = key_blocks(starts, rows, keys, attributes);
  std::vector<KeyBlock> order = blocks;
  std::sort(order.begin(), order.end(), [](const KeyBlock& a, const KeyBlock& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.number < b.number;
  });
  std::vector<std::atomic<int64_t>> done(blocks.size());  // calls of backward_queries so far, by block number
  run_slices(context, std::ssize(order), d, [&](int64_t i, void* scratch) {
    const KeyBlock& block = order[static_cast<size_t>(i)];
    if (attributes.accumulate && block.blocks() == 0) return;
    const int64_t start = starts[static_cast<size_t>(block.sequence)];
    const int64_t end = starts[static_cast<size_t>(block.sequence) + 1];
    AttentionBackward task{};
    task.bf16 = dout.dtype == DType::bf16;
    task.q_stride = attributes.heads * d;
    task.kv_stride = attributes.kv_heads * d;
    task.row_stride = rows;
    const TokenRange own = queries_of(attributes, rows, start, end);
    // Of the sequence's first query, if it has any.
    const int64_t row = own.begin < own.end ? start + own.begin - attributes.first_query : 0;
    const int64_t first_head = block.kv_head * group;
    const int64_t first_row = row * task.q_stride + first_head * d;
    task.first_key = keys_of(attributes, keys, start, end).begin;
    const int64_t key_row = start + task.first_key - attributes.first_key.value_or(0);
    const int64_t first_key = key_row * task.kv_stride + block.kv_head * d;
    task.q = address(saved.q, first_row);
    task.dout = address(dout, first_row);
    task.dq = address(dq, first_row);
    task.lse = saved.lse.as<float>() + first_head * rows + row;
    task.delta = delta + first_head * rows + row;
    task.k = address(saved.k, first_key);
    task.v = address(saved.v, first_key);
    task.dk = address(dk, first_key);
    task.dv = address(dv, first_key);
    task.first_query = own.begin;
    task.end_query = own.end;
    task.is_partial = attributes.first_key.has_value();
    task.accumulate = attributes.accumulate;
    task.begin = block.begin;
    task.end = block.end;
    task.head_dim = d;
    task.scores = scores_of(attributes, first_head);
    task.scratch = scratch;
    K.backward_begin(task);
    int64_t steps = 0;
    for (int64_t h = 0; h < group; ++h) {
      for (int64_t begin = block.first; begin < block.last; begin += attention_block) {
        const bool on_diagonal = begin == block.begin / attention_block * attention_block;
        AttentionQueries queries{
            .head = h, .begin = begin, .sums = nullptr, .first = true, .last = on_diagonal || block.is_last};
        if (begin > 0) {
          const int64_t at = (block.sums + begin / attention_block) * attributes.heads + first_head + h;
          queries.sums = sums + at * d * attention_block;
        }
        if (!block.is_first) {
          const KeyBlock& before = blocks[static_cast<size_t>(block.number - 1)];
          queries.first = begin >= before.last;
          const std::atomic<int64_t>& reached = done[static_cast<size_t>(before.number)];
          const int64_t wanted = queries.first ? 0 : h * before.blocks() + before.steps(begin);
          while (reached.load(std::memory_order_acquire) < wanted) std::this_thread::yield();
        }
        K.backward_queries(task, queries);
        done[static_cast<size_t>(block.number)].store(++steps, std::memory_order_release);
      }
    }
    K.backward_end(task);
  });
}

template <const AttentionKernels& K>
void run_paged(ops::Context& context, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
               const ops::PagedLayout& layout, ops::AttentionAttributes attributes) {
  check_layout(q, pages, layout);
  const int64_t d = attributes.head_dim;
  const int32_t* starts = layout.query_offsets.as<int32_t>();
  const int32_t* lengths = layout.lengths.as<int32_t>();
  const int64_t kv_heads = kv_heads_a_call(attributes, layout.lengths.elements(), context.threads->threads());
  std::vector<AttentionSlice> slices;
  for (int64_t s = 0; s < layout.lengths.elements(); ++s) {
    const int64_t queries = starts[s + 1] - starts[s];
    cut_queries(slices, attributes, s, queries, lengths[s] - queries, kv_heads);
  }
  longest_first(slices);
  run_slices(context, std::ssize(slices), d, [&](int64_t i, void* scratch) {
    const AttentionSlice& slice = slices[static_cast<size_t>(i)];
    const int64_t start = starts[slice.sequence];
    const int64_t queries = starts[slice.sequence + 1] - start;
    const int64_t kv_head = slice.head / (attributes.heads / attributes.kv_heads);
    AttentionForward task = forward_task(q, out, attributes, slice, start, scratch);
    task.k = address(pages.k, kv_head * d);
    task.v = address(pages.v, kv_head * d);
    task.table = layout.tables.as<int32_t>() + slice.sequence * layout.tables.shape[1];
    task.page = pages.k.shape[1];
    task.end_key = lengths[slice.sequence];
    task.first = lengths[slice.sequence] - queries + slice.begin;
    K.forward(task);
  });
}

}  // namespace ingot::cpu
