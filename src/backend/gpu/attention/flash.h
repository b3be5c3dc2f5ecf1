// Flash attention on tensor cores (Dao 2023, arXiv 2307.08691) over packed sequences in bf16; the forward pass
// (attention_mma.gpu.cpp) also in f16, the backward pass in attention_mma_backward.gpu.cpp. A warp has 16 or 32 queries
// of one head (keys, in the gradient of keys and values), and its block loops over tiles of keys (queries), loading the
// next tile while the current one is multiplied. Scores become operands of the second gemm in registers. Tiles start at
// the sequence's own first token and sums run in order, so results are deterministic and do not depend on the other
// sequences in the pack. This also holds where there are queries of a part of the tokens only: the rows of the others
// are zeros and are not stored, so that a query has the bits that it has among all.
//
// bench/reports/2026-11-22-gpu-attention-analysis.md has the counts behind the shapes. No block uses more than 64 KiB
// of shared memory, which all devices have.
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

// The tokens that a block processes. Blocks offsets[s] / rows + s to offsets[s + 1] / rows + s belong to sequence s;
// they are at least as many as it needs.
struct BlockTokens {
  int64_t start;  // first token of the sequence in the pack
  int length;     // of the sequence
  int first;      // first token of the block in the sequence; from `length` on the block has nothing to do
  // The sequence's queries that there are: their first token in the sequence, how many they are (none if not above 0),
  // and the row of the first one.
  int first_query, queries;
  int64_t query_row;

  GPU_FN int end_query() const { return first_query + queries; }
  // Whether the block's `rows` tokens have a query.
  GPU_FN bool has_query(int rows) const { return queries > 0 && first < end_query() && first + rows > first_query; }
  // The token behind the last of the block's `rows` tokens that has a query, if has_query(rows). No query of the block
  // attends to it or to later ones.
  GPU_FN int end_of_block(int rows) const { return first + rows < end_query() ? first + rows : end_query(); }
};
GPU_FN BlockTokens block_tokens(const PackedAttentionArgs& a, int rows, int block) {
  int low = 0;
  int high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.offsets[middle] / rows + middle <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int start = a.offsets[low];
  const int length = a.offsets[low + 1] - start;
  const int before = a.first_query - start;  // tokens of the sequence before query 0; may be negative
  const int first_query = before > 0 ? before : 0;
  const int end_query = before + a.queries < length ? before + static_cast<int>(a.queries) : length;
  return {
      start, length, (block - (start / rows + low)) * rows, first_query, end_query - first_query, first_query - before};
}
// The tokens of the block of queries. Later queries attend to more keys, so their blocks start first.
GPU_FN BlockTokens query_block(const PackedAttentionArgs& a, int rows) {
  return block_tokens(a, rows, blocks_before(a.first_query, rows) + grid_blocks() - 1 - block_index());
}

// The rows of one head of a sequence: of all its tokens, or of its queries that there are.
template <class T>
struct HeadRows {
  int64_t start, stride;
  int end, d;
  GPU_FN Source<T> source(const void* matrix) const { return {static_cast<const T*>(matrix) + start, stride, end, d}; }
  // Stores those of rows `first` to first + 15 that are among the first `rows`, each times its factor.
  template <int count>
  GPU_FN void store(void* matrix, int first, int rows, const MmaAccumulator (&sums)[count],
                    const float (&factors)[mma_lane_rows]) const {
    store_rows(static_cast<T*>(matrix) + start, stride, first, rows, d, sums, factors);
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
// The first `count` tokens.
template <class T>
GPU_FN HeadRows<T> key_rows(const PackedAttentionArgs& a, const BlockTokens& tokens, int count, int kv_head) {
  return head_rows<T>(a, tokens.start, count, a.kv_heads, kv_head);
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

// The blocks of queries, with query_block(); and those of keys, whose index is the block's.
inline Grid query_grid(const PackedAttentionArgs& args, const FlashShape& shape) {
  const int64_t end = (args.first_query + args.queries) / shape.rows() + args.sequences;
  return {args.sequences > 0 ? end - blocks_before(args.first_query, shape.rows()) : 0, args.heads};
}
inline Grid key_grid(const PackedAttentionArgs& args, const FlashShape& shape) {
  return {args.sequences > 0 ? args.tokens / shape.rows() + args.sequences : 0, args.kv_heads};
}

// Part of register_attention_mma.
void register_attention_mma_backward(ops::Registry& registry, DeviceKind kind);

}  // namespace ingot::gpu
#endif
