// The one place where a numerical tolerance comes from.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ingot {

// Unit roundoff of a floating type: f32 2^-24, f16 2^-11, bf16 2^-8.
double unit_roundoff(DType dtype);

// Error that a result may have, as a share of the scale of the quantity (for a sum the square root of the sum of
// squared terms, or the largest absolute result). `result` is the type it is stored in, `length` how many fp32 terms
// were summed (1 for element-wise). Randomly rounded sums of n terms err by about sqrt(n) u (Higham and Mary, SIAM J.
// Sci. Comput. 41(5), 2019); the factor 8 covers the tail over many elements and a few element-wise steps before and
// after:
//   tolerance = 8 (sqrt(length) u(f32) + u(result) if result is not f32).
double tolerance(DType result, int64_t length);

}  // namespace ingot
