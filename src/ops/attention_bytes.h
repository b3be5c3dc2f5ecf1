// Scratch of attention. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Most bytes that `attention` or `paged_attention` over `tokens` takes from the scratch arena, with `threads` CPU
// threads (0: on a GPU) and sequences of at most `longest` tokens.
size_t attention_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads);

// The same for `attention_backward`; not less than attention_bytes.
size_t attention_backward_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads);

// The part of that in which the CPU sums dq, in fp32.
size_t attention_query_sums_bytes(int64_t tokens, int64_t heads, int64_t head_dim);

// A GPU that decodes takes the keys of a sequence in units of so many places.
inline constexpr int64_t attention_unit_keys = 128;
// What it needs to have a block for each unit: for each, a row of sums and two numbers a token and head. Where scratch
// has less, a block goes over all units. `attention_bytes` counts it up to 16 MiB: what needs more has many tokens.
size_t attention_units_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim);

// The part of it that a vendor's library of attention may have for itself.
inline constexpr size_t attention_library_bytes = size_t{1} << 16;

// The part of it that each CPU thread has for itself: operand panels, a block of scores and sums.
size_t attention_thread_bytes(int64_t head_dim);

}  // namespace ingot::ops
