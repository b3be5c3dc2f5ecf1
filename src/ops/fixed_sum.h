// Sums of fp32 contributions in int64 fixed point: the same bits in whatever order and grouping they are added, so that
// gradients do not depend on micro-batches, ranks or schedules (docs/architecture.md, idea 4).
//
// A sum has a range: contributions are below 2^range in magnitude. With `bits` b, element q of the sum stands for q *
// 2^(range - b); contributions are rounded to nearest, ties to even. 2^(62 - b) contributions within the range cannot
// overflow. Elements that are out of range or not finite are added as 0, and `largest` reports that they occurred.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// The largest `bits` with which a sum of `contributions` cannot overflow.
constexpr int fixed_sum_bits(int64_t contributions) {
  return 62 - static_cast<int>(std::bit_width(static_cast<uint64_t>(contributions) - 1));
}

// The range of the next sums of a kind, given the largest magnitude `largest` of the last one: 64 times that, but at
// least 2^-88, so that the scale factors are fp64 numbers. Unchanged when `largest` is 0 or not finite.
constexpr int32_t next_range(int32_t range, float largest) {
  const auto bits = std::bit_cast<uint32_t>(largest);
  if (bits == 0 || bits >= 0x7f800000U) return range;
  const int32_t exponent = static_cast<int32_t>(bits >> 23) - 126;  // largest < 2^exponent
  return exponent + 6 < -88 ? -88 : exponent + 6;
}

// Whether a sum with this largest contribution is valid: all contributions were finite and in range.
constexpr bool in_range(int32_t range, float largest) {
  const auto bits = std::bit_cast<uint32_t>(largest);
  return bits < 0x7f800000U && static_cast<int32_t>(bits >> 23) - 126 <= range;
}

// sum [n] i64 (+)= the contributions x [n] f32. largest [1] f32 becomes the largest |x| of this call or, with
// `accumulate`, of this and the earlier calls; infinity when an element is not finite. range [1] i32.
void add_fixed(Context& context, const Tensor& sum, const Tensor& largest, const Tensor& x, const Tensor& range,
               int bits, bool accumulate);
struct AddFixed {
  static constexpr const char* name = "add_fixed";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int, bool);
};

// y [n] f32 = the value of sum [n] i64, by way of fp64; all elements are NaN when `largest` is out of range.
void fixed_to_float(Context& context, const Tensor& y, const Tensor& sum, const Tensor& largest, const Tensor& range,
                    int bits);
struct FixedToFloat {
  static constexpr const char* name = "fixed_to_float";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int);
};

// range [n] i32 = next_range(range, largest), element by element; largest [n] f32.
void next_ranges(Context& context, const Tensor& range, const Tensor& largest);
struct NextRanges {
  static constexpr const char* name = "next_ranges";
  using Signature = void(Context&, const Tensor&, const Tensor&);
};

}  // namespace ingot::ops
