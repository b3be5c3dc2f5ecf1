// Scratch bytes of attention. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Upper bound on the bytes that `attention` or `paged_attention` with `tokens` queries takes from the scratch arena,
// with `threads` CPU threads (0: on a GPU) and sequences of which at most `longest` tokens have keys.
size_t attention_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads);

// The same for `attention_backward`; not less than attention_bytes. With queries of a part of the tokens,
// `attention_cut_queries` are to be added to them.
size_t attention_backward_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads);

// The part of attention_backward_bytes in which the CPU accumulates dq, in fp32.
size_t attention_dq_accumulator_bytes(int64_t tokens, int64_t heads, int64_t head_dim);

// Upper bound on the queries that are missing in the first and the last block of 64 of a sequence that has only a part
// of its queries.
inline constexpr int64_t attention_cut_queries = 128;

// Keys per split in decode on GPUs, where the keys of a sequence are split over thread blocks (as in Flash-Decoding).
inline constexpr int64_t attention_split_keys = 128;
// Scratch bytes for one thread block per split: a row of partial sums and two numbers per token, head and split. With
// less scratch, one thread block processes all splits. `attention_bytes` includes at most 16 MiB of this: only batches
// with many tokens need more.
size_t attention_splits_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim);

// The part of attention_bytes that is reserved for a vendor's attention library.
inline constexpr size_t attention_library_bytes = size_t{1} << 16;

// The part of attention_bytes that each CPU thread uses: operand panels, a block of scores, and sums.
size_t attention_thread_bytes(int64_t head_dim);

}  // namespace ingot::ops
