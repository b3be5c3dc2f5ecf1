// Scratch of layer_norm_backward. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Rows whose contributions to dweight and dbias are summed together before the blocks are summed in order.
inline constexpr int64_t layer_norm_block = 64;

// Most bytes that `layer_norm_backward` of [tokens, features] takes from the scratch arena; layer_norm takes none.
size_t layer_norm_bytes(int64_t tokens, int64_t features);

}  // namespace ingot::ops
