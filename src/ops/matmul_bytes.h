// Scratch of the matrix products. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Rows of a weight that are decoded at a time.
int64_t decoded_rows(int64_t out, int64_t in);

// Most bytes that `linear` or `linear_backward_input` of `tokens` x [out, in] takes from the scratch arena when the
// weight must be decoded (`decoded`) or is used in place. Activations take `activation_bytes` bytes an element.
size_t linear_bytes(int64_t tokens, int64_t out, int64_t in, size_t activation_bytes, bool decoded);

}  // namespace ingot::ops
