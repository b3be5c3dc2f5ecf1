// Scratch bytes of rms_norm_backward. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Rows per block: the contributions of a block to dweight are summed first, then the blocks in order.
inline constexpr int64_t rms_norm_block = 64;

// Upper bound on the bytes that `rms_norm_backward` of [tokens, features] takes from the scratch arena; rms_norm takes
// none.
size_t rms_norm_bytes(int64_t tokens, int64_t features);

}  // namespace ingot::ops
