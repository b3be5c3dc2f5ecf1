// Linear layers whose activations are rounded to 8-bit integers, so that products with a quantised weight are sums of
// integers. Letters: T tokens.
//
// Numerics: of each block of 32 elements of a row of x, with a the largest magnitude, the scale is a / 127 and the
// integers are x * (127 / a), rounded to nearest even, all in fp32; where a is below 2^-121 both are 0. The products of
// a block are summed exactly in integers, multiplied by both scales, and summed over blocks in fp32, in an order that
// depends on `in` alone. Results differ from `linear`, which decodes the weight and rounds neither operand further.
// llama.cpp multiplies these weights in the same way, with scales of activations in f16.
#pragma once

#include "ops/matmul.h"

namespace ingot::ops {

// y [T, out] (+)= int8(x) [T, in] W^T. Dtypes as in `linear`. W [out, in] is stored in q8_0 or q4_0. A block with an
// element that is not finite makes its results NaN or infinite.
void linear_int8(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes);

// The weights that it accepts; check_int8_weight: ErrorKind::internal for others, in the name of `op`.
inline bool has_linear_int8(StorageType storage) {
  return storage == StorageType::q8_0 || storage == StorageType::q4_0;
}

void check_int8_weight(const char* op, const Weight& weight);

struct LinearInt8 {
  static constexpr const char* name = "linear_int8";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

}  // namespace ingot::ops
