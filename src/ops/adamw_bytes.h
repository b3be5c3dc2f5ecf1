// Scratch bytes of sum_squares. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Elements per block: the squares of a block are summed first, then the blocks in order.
inline constexpr int64_t sum_squares_block = 65536;

// Upper bound on the bytes that `sum_squares` of n elements takes from the scratch arena; adamw takes none.
size_t sum_squares_bytes(int64_t n);

}  // namespace ingot::ops
