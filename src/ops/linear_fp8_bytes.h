// Scratch of linear layers in fp8. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Most bytes that `linear_fp8` or `linear_fp8_backward_input` of `tokens` x [out, in] takes from the scratch arena when
// the weight must be rounded (`rounded`) or is stored in fp8.
size_t linear_fp8_bytes(int64_t tokens, int64_t out, int64_t in, bool rounded);

}  // namespace ingot::ops
