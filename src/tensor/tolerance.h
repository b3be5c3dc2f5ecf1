// The only source of numerical tolerances.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ingot {

// Unit roundoff of a floating type: f32 2^-24, f16 2^-11, bf16 2^-8.
double unit_roundoff(DType dtype);

// Error allowed in a result, relative to the scale of the quantity (for a sum, the square root of the sum of squared
// terms, or the largest absolute result). `result` is the dtype in which it is stored, `length` the number of fp32
// terms that were summed (1 for element-wise ops). Randomly rounded sums of n terms err by about sqrt(n) u (Higham and
// Mary, SIAM J. Sci. Comput. 41(5), 2019); the factor 8 covers the tail over many elements and a few element-wise steps
// before and after:
//   tolerance = 8 (sqrt(length) u(f32) + u(result) if result is not f32).
double tolerance(DType result, int64_t length);

}  // namespace ingot
