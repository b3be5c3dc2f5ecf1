// Scratch bytes of fixed-point sums. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Elements per block of the search for the largest magnitude.
inline constexpr int64_t fixed_sum_block = 4096;

// Upper bound on the bytes that `add_fixed` of n elements takes from the scratch arena; the other ops take none.
size_t add_fixed_bytes(int64_t n);

}  // namespace ingot::ops
