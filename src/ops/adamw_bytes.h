// Scratch of sum_squares. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Elements whose squares are summed together before the blocks are summed in order.
inline constexpr int64_t sum_squares_block = 65536;

// Most bytes that `sum_squares` of n elements takes from the scratch arena; adamw takes none.
size_t sum_squares_bytes(int64_t n);

}  // namespace ingot::ops
