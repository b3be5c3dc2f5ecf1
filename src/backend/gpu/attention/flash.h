// Flash attention on tensor cores (Dao 2023, arXiv 2307.08691) over packed sequences in bf16; the forward pass
// (attention_mma.gpu.cpp) also in f16, the backward pass (attention_mma_backward.gpu.cpp) not. A warp has 16 or 32
// queries of one head (keys, in the gradient of keys and values), and its block loops over tiles of keys (queries),
// loading the next tile while the current one is multiplied. Scores become operands of the second gemm in registers.
// Tiles start at the sequence's own first token and sums run in order, so results are deterministic and do not depend
// on the other sequences in the pack. This also holds where there are queries of a part of the tokens only: the rows of
// the others are zeros and are not stored, so that a query has the bits that it has among all. Where there are keys of
// a part of the tokens, their tiles start at the sequence's first token that has one.
//
// bench/reports/2026-11-22-gpu-attention-analysis.md has the counts behind the shapes. No block uses more than 64 KiB
// of shared memory, which all devices have, but those of arch/, which Hopper runs instead.
#pragma once

#include "backend/gpu/attention/attention_tiles.h"

namespace ingot::gpu {

// The shape of a kernel for heads of up to `d` elements (64, 128 or 256) and warps of `lanes` lanes. `wide`: an operand
// takes 8 registers of a lane (RDNA 3), so that fewer rows fit.
struct FlashShape {
  int warps;
  int tiles;  // of 16 rows, per warp
  int inner;  // rows of the tiles that the block loops over

  GPU_FN constexpr int rows() const { return 16 * warps * tiles; }
  // Two stages of two tiles each; with 32 lanes also `resident` matrices of the block's own rows.
  GPU_FN constexpr size_t shared_bytes(int d, int lanes, int resident) const {
    const int resident_rows = lanes == 32 ? resident * rows() : 0;
    return sizeof(uint16_t) * static_cast<size_t>(4 * inner + resident_rows) * static_cast<size_t>(d);
  }
};

// So many blocks of `rows` tokens (BlockTokens) are only of tokens before `first_query`, however the pack is divided
// into sequences.
GPU_FN constexpr int blocks_before(int first_query, int rows) {
  return first_query < rows ? 0 : first_query / rows - 1;
}

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr bool wide = sizeof(MmaA) == 32;

// The tokens of a sequence that a block processes. They are numbered from the sequence's first one that has a key, or
// that comes after the keys that there are: those before it, whose queries attend to no key, have negative numbers.
struct BlockTokens {
  int64_t key_row;  // of token 0
  int keys;         // tokens 0 to keys - 1 have a key
  int first;        // of the block
  // The sequence's queries that there are: their first token, how many they are (none if not above 0), and the row of
  // the first one.
  int first_query, queries;
  int64_t query_row;

  GPU_FN int end_query() const { return first_query + queries; }
  // Whether the block's `rows` tokens have a query.
  GPU_FN bool has_query(int rows) const { return queries > 0 && first < end_query() && first + rows > first_query; }
  // The token behind the last one with a key to which a query among the block's `rows` tokens may attend, if
  // has_query(rows).
  GPU_FN int end_of_keys(int rows) const {
    const int end = first + rows < end_query() ? first + rows : end_query();
    return end < keys ? (end > 0 ? end : 0) : keys;
  }
};
// `first`: the number of the block's first token, counted from the beginning of the sequence.
GPU_FN BlockTokens block_tokens(const PackedAttentionArgs& a, int sequence, int first) {
  const int start = a.offsets[sequence];
  const int end = a.offsets[sequence + 1];
  const int end_key = a.first_key + static_cast<int>(a.keys) < end ? a.first_key + static_cast<int>(a.keys) : end;
  const int origin = a.first_key > start ? a.first_key : start;
  const int query = a.first_query > start ? a.first_query : start;
  const int query_end = a.first_query + a.queries < end ? a.first_query + static_cast<int>(a.queries) : end;
  return {.key_row = origin - a.first_key,
          .keys = end_key > origin ? end_key - origin : 0,
          .first = start - origin + first,
          .first_query = query - origin,
          .queries = query_end - query,
          .query_row = query - a.first_query};
}
// The sequence of a block. If the tokens of sequence s are begin(s) to begin(s + 1) - 1, it has the blocks
// begin(s) / rows + s to begin(s + 1) / rows + s, which are at least as many as it needs.
template <class Begin>
GPU_FN int sequence_of_block(int sequences, int rows, int block, Begin begin) {
  int low = 0;
  int high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (begin(middle) / rows + middle <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}
// The tokens of the block of queries. Later queries attend to more keys, so their blocks start first.
GPU_FN BlockTokens query_block(const PackedAttentionArgs& a, int rows) {
  const int block = blocks_before(a.first_query, rows) + grid_blocks() - 1 - block_index();
  const auto begin = [&](int s) { return a.offsets[s]; };
  const int sequence = sequence_of_block(a.sequences, rows, block, begin);
  return block_tokens(a, sequence, (block - (begin(sequence) / rows + sequence)) * rows);
}
// The tokens of the block of keys; if the first one is not among those with a key, the block has nothing to do.
GPU_FN BlockTokens key_block(const PackedAttentionArgs& a, int rows) {
  const auto begin = [&](int s) {  // row of the sequence's first key, if it has one
    const int row = a.offsets[s] - a.first_key;
    return row < 0 ? 0 : row < a.keys ? row : static_cast<int>(a.keys);
  };
  const int sequence = sequence_of_block(a.sequences, rows, block_index(), begin);
  BlockTokens tokens = block_tokens(a, sequence, 0);
  tokens.first = (block_index() - (begin(sequence) / rows + sequence)) * rows;
  return tokens;
}

// The rows of one head of a sequence: of all its tokens, or of its queries that there are.
template <class T>
struct HeadRows {
  int64_t start, stride;
  int end, d;
  GPU_FN Source<T> source(const void* matrix) const { return {static_cast<const T*>(matrix) + start, stride, end, d}; }
  // Stores those of rows `first` to first + 15 that there are, each times its factor.
  template <int count>
  GPU_FN void store(void* matrix, int first, const MmaAccumulator (&sums)[count],
                    const float (&factors)[mma_lane_rows]) const {
    int64_t at[mma_lane_rows];
    find_rows(at, stride, first, end);
    store_rows(static_cast<T*>(matrix) + start, at, d, sums, factors);
  }
  // The same to a matrix of f32, plus what is there, each row times `earlier`.
  template <int count>
  GPU_FN void store_joined(void* matrix, int first, const MmaAccumulator (&sums)[count],
                           const float (&factors)[mma_lane_rows], const float (&earlier)[mma_lane_rows]) const {
    int64_t at[mma_lane_rows];
    find_rows(at, stride, first, end);
    store_joined_rows(static_cast<float*>(matrix) + start, at, d, sums, factors, earlier);
  }
  // Rows of a gradient, each times `factor`, as `a` says.
  template <int count>
  GPU_FN void store_gradient(const PackedAttentionArgs& a, void* matrix, int first, const MmaAccumulator (&sums)[count],
                             float factor) const {
    float factors[mma_lane_rows];
    float earlier[mma_lane_rows];
    for (float& each : factors) each = factor;
    for (float& each : earlier) each = a.accumulate ? 1.0F : 0.0F;
    if (a.partial) {
      store_joined(matrix, first, sums, factors, earlier);
    } else {
      store(matrix, first, sums, factors);
    }
  }
};
template <class T>
GPU_FN HeadRows<T> head_rows(const PackedAttentionArgs& a, int64_t first, int count, int heads, int head) {
  const int64_t stride = static_cast<int64_t>(heads) * a.d;
  return {first * stride + static_cast<int64_t>(head) * a.d, stride, count, a.d};
}
// Row 0 is the sequence's first query that there is.
template <class T>
GPU_FN HeadRows<T> query_rows(const PackedAttentionArgs& a, const BlockTokens& tokens, int head) {
  return head_rows<T>(a, tokens.query_row, tokens.queries, a.heads, head);
}
// Of tokens 0 to count - 1.
template <class T>
GPU_FN HeadRows<T> key_rows(const PackedAttentionArgs& a, const BlockTokens& tokens, int count, int kv_head) {
  return head_rows<T>(a, tokens.key_row, count, a.kv_heads, kv_head);
}

// Double buffering: two stages of two tiles of `inner` rows; one stage is multiplied while the other one is loaded.
template <class T, int D, int inner, int threads>
struct Stages {
  T* shared;
  TileCopy<T, inner, D, threads> left_copy, right_copy;

  GPU_FN Tile<T, D> left(int stage) const { return {shared + stage * 2 * inner * D}; }
  GPU_FN Tile<T, D> right(int stage) const { return {shared + (stage * 2 + 1) * inner * D}; }
  GPU_FN void begin(int stage, const Source<T>& from_left, const Source<T>& from_right, int first) {
    left_copy.begin(left(stage), from_left, first);
    right_copy.begin(right(stage), from_right, first);
  }
  // On return the stage is loaded, and no thread reads the other one any more.
  GPU_FN void wait() {
    left_copy.copies.wait();
    right_copy.copies.wait();
    block_barrier();
  }
};

// Loads the block's own rows to `shared` (its rows times D elements); returns those of the warp.
template <int D, int tiles, int warps, bool in_registers, class T>
GPU_FN Rows<T, D, tiles, in_registers> load_own_rows(T* shared, const Source<T>& from, int first) {
  TileCopy<T, 16 * tiles * warps, D, warps * warp_width> copy = {};
  copy.begin({shared}, from, first);
  copy.copies.wait();
  block_barrier();
  const Rows<T, D, tiles, in_registers> rows(Tile<T, D>{shared}.from_row(warp_index() * tiles * 16));
  if constexpr (in_registers) block_barrier();  // `shared` may be reused
  return rows;
}
// True if the operands of `matrices` matrices take at most `max_registers` 4-byte registers of a lane; they then stay
// in registers.
template <int D, int tiles, int matrices, int max_registers>
constexpr bool fit_in_registers = static_cast<int>(sizeof(MmaA)) / 4 * (D / mma_k) * tiles * matrices <= max_registers;

template <class T>
GPU_FN MmaA operand_of(const MmaAccumulator* sums) {
  MmaAccumulator part[operand_tiles];
  GPU_UNROLL
  for (int j = 0; j < operand_tiles; ++j) part[j] = sums[j];
  return mma_operand<T>(part);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "ops/registry.h"

namespace ingot::gpu {

inline bool is_wide(const ops::Context& context) { return device_of(context).arch().starts_with("gfx11"); }

inline int padded_d(int64_t d) { return d <= 64 ? 64 : d <= 128 ? 128 : 256; }

// The blocks of queries, with query_block(), and those of keys, with key_block().
inline Grid query_grid(const PackedAttentionArgs& args, const FlashShape& shape) {
  const int64_t end = (args.first_query + args.queries) / shape.rows() + args.sequences;
  return {args.sequences > 0 ? end - blocks_before(args.first_query, shape.rows()) : 0, args.heads};
}
inline Grid key_grid(const PackedAttentionArgs& args, const FlashShape& shape) {
  return {args.sequences > 0 ? args.keys / shape.rows() + args.sequences : 0, args.kv_heads};
}

// Part of register_attention_mma.
void register_attention_mma_backward(ops::Registry& registry, DeviceKind kind);

}  // namespace ingot::gpu
#endif
