// The only source of numerical tolerances.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ingot {

// Unit roundoff of a floating type: f64 2^-53, f32 2^-24, f16 2^-11, bf16 2^-8.
double unit_roundoff(DType dtype);

// Error allowed in a result as a whole, relative to the scale of the quantity (for a sum, the square root of the sum of
// squared terms, or the largest absolute result). `result` is the dtype in which it is stored, `length` the number of
// fp32 terms that were summed (1 for element-wise ops). Randomly rounded sums of n terms err by about sqrt(n) u (Higham
// and Mary, SIAM J. Sci. Comput. 41(5), 2019); the factor 8 covers the tail over many elements and a few element-wise
// steps before and after:
//   tolerance = 8 (sqrt(length) u(f32) + u(result) if result is not f32).
double tolerance(DType result, int64_t length);

// What the error of one element of a result may depend on.
struct ElementTerms {
  double wanted = 0;     // the exact value
  double condition = 0;  // sum of the absolute values of the fp32 terms that are added for this element
  double narrow = 0;     // the same over terms of which a factor is rounded to `result` before they are added
};

// How a result is stored: `nearest` where the contract says that it is rounded once.
enum class Rounding { relative, nearest };

// Error allowed in one element of a result of type `result`, a sum of `length` terms in fp32 (in fp64 if `result` is
// f64; v is the unit roundoff of that type):
//   store |wanted| + sum condition + u(result) narrow + the smallest normal number,
//   store = u(result) [16-bit types only] + 4 sqrt(length) v,  sum = 4 v.
// With Rounding::nearest, half a unit in the last place of `wanted` replaces u(result) |wanted|, of which it is between
// a half and the whole; a result that is rounded twice is off by up to three halves of a unit.
//
// Why `length` is with |wanted| and not with `condition`: let s_i be the partial sums of terms t_i in any order. The
// error is the sum of s_i d_i with random |d_i| <= v, of order v sqrt(sum of s_i^2). In a random order E(s_i^2) is
// (i/n)^2 wanted^2 plus that of a bridge with at most (i/n)(1 - i/n) sum of t_i^2, so the sum over i is about
// n (wanted^2 / 3 + (sum of t_i^2) / 6): the first part is sqrt(n) |wanted|, and for terms of like size
// n (sum of t_i^2) is about condition^2. By Cauchy and Schwarz condition <= sqrt(n) sqrt(sum of t_i^2), so without
// `narrow` no element is allowed more than tolerance(result, length) times the larger of |wanted| and the root of its
// summed squares.
double element_tolerance(DType result, int64_t length, const ElementTerms& terms, Rounding rounding);

}  // namespace ingot
