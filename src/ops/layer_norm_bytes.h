// Scratch bytes of layer_norm_backward. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Rows per block: the contributions of a block to dweight and dbias are summed first, then the blocks in order.
inline constexpr int64_t layer_norm_block = 64;

// Upper bound on the bytes that `layer_norm_backward` of [tokens, features] takes from the scratch arena; layer_norm
// takes none.
size_t layer_norm_bytes(int64_t tokens, int64_t features);

}  // namespace ingot::ops
