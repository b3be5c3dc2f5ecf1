// Scratch of attention. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Most bytes that `attention`, `attention_backward` or `paged_attention` over `tokens` takes from the scratch arena,
// with `threads` threads and sequences of at most `longest` tokens.
size_t attention_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads);

// The part of it that each CPU thread has for itself: operand panels, a block of scores and sums.
size_t attention_thread_bytes(int64_t head_dim);

}  // namespace ingot::ops
