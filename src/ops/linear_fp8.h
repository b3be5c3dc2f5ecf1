// Linear layers with fp8 operands (tensor/fp8.h). Letters: T tokens, K the summed features.
//
// Numerics, the same on every device up to the order of sums: x is rounded to e4m3 row by row, each row (token) with
// its own scale; the weight is rounded to e4m3 row by row; column o of dy is multiplied by the scale of weight row o,
// then dy is rounded to e4m3 or e5m2 row by row. Products are exact, summed in fp32, and scaled at the end; for bf16
// results a vendor's library may keep sums of 128 products to about 14 bits on Hopper
// (backend/gpu/runtime/cublaslt.cpp). The weight gradient is not computed here: it is an ops::matmul of the operands
// before rounding.
#pragma once

#include "ops/matmul.h"

namespace ingot::ops {

// y [T, out] (+)= fp8(x) [T, in] fp8(W)^T. Dtypes as in `linear`. W [out, in] is stored in fp8_e4m3 and used as it is,
// or stored in f32 or bf16 and rounded here.
void linear_fp8(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes);

// dx [T, in] (+)= fp8(dy) [T, out] fp8(W). Dtypes as in `linear_backward_input`; dy is rounded to `gradients`, fp8_e4m3
// or fp8_e5m2.
void linear_fp8_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                               StorageType gradients, LinearAttributes attributes);

// The ops that the two functions above are made of.

// q [R, K], stored in fp8_e4m3 or fp8_e5m2, = x [R, K], f32 or bf16, rounded to nearest even, with a scale for each
// row. With `by`, an fp8 matrix [K, n], element k of every row is first multiplied by the scale of row k of `by`.
void quantize_fp8(Context& context, const Weight& q, const Tensor& x, const Weight& by);

struct QuantizeFp8 {
  static constexpr const char* name = "quantize_fp8";
  using Signature = void(Context&, const Weight&, const Tensor&, const Weight&);
  static OpWork work(const Weight& q, const Tensor& x, const Weight&) { return recoding_work(x, q); }
};

// x [R, K], f32 or bf16, = q [R, K]; with `by`, element k of every row is divided by the scale of row k of `by`. Exact,
// because scales are powers of two.
void dequantize_fp8(Context& context, const Tensor& x, const Weight& q, const Weight& by);

struct DequantizeFp8 {
  static constexpr const char* name = "dequantize_fp8";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&);
  static OpWork work(const Tensor& x, const Weight& q, const Weight&) { return recoding_work(x, q); }
};

// scales [R] f32 = the scales of q's rows, contiguous.
void fp8_scales(Context& context, const Tensor& scales, const Weight& q);

struct Fp8Scales {
  static constexpr const char* name = "fp8_scales";
  using Signature = void(Context&, const Tensor&, const Weight&);
};

// y [T, out] (+)= x [T, in] W^T, and dx [T, in] (+)= dy [T, out] W, where dy is the result of quantize_fp8(.., by = W):
// its elements already include the scales of W's rows, so these are not applied again.
struct GemmFp8 {
  static constexpr const char* name = "linear_fp8";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&, LinearAttributes);
  static OpWork work(const Tensor& y, const Weight&, const Weight& weight, LinearAttributes) {
    return {.gemm = {y.shape[0], weight.out, weight.in}, .bytes = static_cast<double>(y.bytes())};
  }
};
struct GemmFp8BackwardInput {
  static constexpr const char* name = "linear_fp8_backward_input";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&, LinearAttributes);
  static OpWork work(const Tensor& dx, const Weight&, const Weight& weight, LinearAttributes) {
    return {.gemm = {dx.shape[0], weight.in, weight.out}, .bytes = static_cast<double>(dx.bytes())};
  }
};

// Both gemms for devices without fp8 gemms: decode the left operand to bf16 and call `linear` or
// `linear_backward_input`.
void linear_fp8_decoded(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                        LinearAttributes attributes);
void linear_fp8_backward_input_decoded(Context& context, const Tensor& dx, const Weight& dy, const Weight& weight,
                                       LinearAttributes attributes);

}  // namespace ingot::ops
