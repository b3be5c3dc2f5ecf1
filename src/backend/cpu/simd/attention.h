// Attention kernels, compiled once per level. One call computes one block on one thread, with raw pointers only.
// Letters: R rows of a block (queries of several heads), B = attention_block keys, D head size.
#pragma once

#include <cstdint>

namespace ingot::cpu {

// Keys per block. Blocks start at multiples of this from key 0 of the sequence, whatever the queries, so a token's bits
// depend neither on the other sequences nor on how a prompt was chunked.
inline constexpr int64_t attention_block = 64;
// Max rows (queries times heads) of one call.
inline constexpr int64_t attention_rows = 192;

// Parameters of the scores, see ops/attention.h.
struct AttentionScores {
  float scale;
  float softcap;        // 0: none
  int64_t window;       // number of keys that a query attends to, itself included; no_window: all
  const float* slopes;  // indexed by head of the call; null: none
};
inline constexpr int64_t no_window = int64_t{1} << 40;

enum class ElementType { f32, bf16, f16 };

// Some queries of some heads: of several that share one key/value head, or of all that share some consecutive ones.
// Strides are in elements.
struct AttentionForward {
  ElementType type;   // of q, k, v and out
  const void* q;      // first query, first head; consecutive heads are head_dim apart
  void* out;          // like q; f32 with is_partial
  float* lse;         // first head, first query; consecutive heads are lse_stride apart; null: not computed
  const void* k;      // first key/value head in the row of `first_key`, or of page 0; heads are head_dim apart
  const void* v;      // like k
  int64_t q_stride;   // between tokens of q and of out
  int64_t kv_stride;  // between tokens of k and of v
  int64_t lse_stride;
  const int32_t* table;  // page numbers: key i is row table[i / page] * page + i % page; null: row i - first_key
  int64_t page;
  int64_t first_key, end_key;  // of the sequence's keys, those that there are; from 0 on with a table
  int64_t queries, heads;      // queries <= attention_block, queries * heads <= attention_rows
  int64_t kv_heads;            // divides heads
  int64_t first;               // query i is token first + i of the sequence
  int64_t head_dim;
  AttentionScores scores;
  bool is_partial, accumulate;  // AttentionAttributes::first_key is set; its `accumulate`
  void* scratch;                // ops::attention_thread_bytes, 64-byte aligned
};

// Gradients within one sequence, for one key/value head and one block of its keys. The block's data in `scratch` (its
// operands, the sums of dk and dv) must live from backward_begin to backward_end.
struct AttentionBackward {
  bool bf16;
  const void* q;       // query `first_query` of the sequence, first head of the call
  const void* dout;    // like q
  void* dq;            // like q; dq, dk and dv are f32 with is_partial
  const float* lse;    // first head, query `first_query`; consecutive heads are row_stride apart
  const float* delta;  // sum of dout * out, laid out like lse
  const void* k;       // key `first_key` of the sequence, this key/value head
  const void* v;
  void* dk;
  void* dv;
  int64_t q_stride, kv_stride, row_stride;
  int64_t first_query, end_query;  // of the sequence's queries, those that there are
  int64_t first_key;
  int64_t begin;  // first key of the block, a multiple of attention_block or `first_key`
  int64_t end;    // one past the last key, at most the next multiple of attention_block
  int64_t head_dim;
  AttentionScores scores;
  bool is_partial, accumulate;  // as in AttentionForward; with `accumulate` dq, dk and dv are added to
  void* scratch;                // ops::attention_thread_bytes, 64-byte aligned
};

// A block of queries of one head that attends to some of the keys.
struct AttentionQueries {
  int64_t head;   // relative to the first head of the call
  int64_t begin;  // first query, a multiple of attention_block
  float* sums;    // [D, attention_block]: the sums of dq of these queries over the preceding key blocks; may be null if
                  // this is the only key block that they attend to
  bool first;     // they attend to no key before this block
  bool last;      // and to none after it: always so where the block has some of the same tokens
};

struct AttentionKernels {
  void (*forward)(const AttentionForward& task);
  // delta [head, token], with heads row_stride apart, = sum over D of dout * out, for tokens [begin, end) of all heads.
  void (*delta)(bool bf16, const void* dout, const void* out, float* delta, int64_t heads, int64_t head_dim,
                int64_t row_stride, int64_t begin, int64_t end);
  void (*backward_begin)(const AttentionBackward& task);
  // Adds to dk and dv of the keys, in the order of the calls, and to the sums of dq of the queries. With
  // AttentionQueries::last the sums are complete, and dq is assigned, or added to.
  void (*backward_queries)(const AttentionBackward& task, const AttentionQueries& queries);
  void (*backward_end)(const AttentionBackward& task);  // assigns dk and dv, or adds to them
};

namespace plain {
extern const AttentionKernels attention_kernels;
}
namespace avx2 {
extern const AttentionKernels attention_kernels;
}
namespace avx512 {
extern const AttentionKernels attention_kernels;
extern const AttentionKernels attention_fma_kernels;  // bf16 is multiplied as fp32 by fused multiply-adds
}  // namespace avx512
namespace amx {
extern const AttentionKernels attention_kernels;
}
#if defined(INGOT_SIMD_LEVEL)  // the level that is being compiled, which in tests may be another one
namespace INGOT_SIMD_LEVEL {
extern const AttentionKernels attention_kernels;
}
#endif

}  // namespace ingot::cpu
