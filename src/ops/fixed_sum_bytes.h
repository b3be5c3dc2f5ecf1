// Scratch of fixed-point sums. No tensors: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Elements whose largest magnitude is found together.
inline constexpr int64_t fixed_sum_block = 4096;

// Most bytes that `add_fixed` of n elements takes from the scratch arena; the other ops take none.
size_t add_fixed_bytes(int64_t n);

}  // namespace ingot::ops
