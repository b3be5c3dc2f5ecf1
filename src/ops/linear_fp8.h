// Linear layers whose operands are fp8 (tensor/fp8.h). Letters: T tokens, K the summed features.
//
// Numerics, the same on every device up to the order of sums: x is rounded to e4m3 row by row, each row (token) with
// its own scale; the weight to e4m3 row by row; dy, of which column o has been multiplied by the scale of the weight's
// row o, to e4m3 or e5m2 row by row. Products are exact and summed in fp32, and scaled at the end; for results in bf16
// a vendor's library may keep sums of 128 products to about 14 bits on Hopper (backend/gpu/runtime/cublaslt.cpp). The
// gradient of the weight is not computed here: it is the product of what was not rounded (ops::matmul).
#pragma once

#include "ops/matmul.h"

namespace ingot::ops {

// y [T, out] (+)= fp8(x) [T, in] fp8(W)^T. Types as in `linear`. W [out, in] is stored fp8_e4m3 and taken as it is, or
// f32 or bf16 and rounded here.
void linear_fp8(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes);

// dx [T, in] (+)= fp8(dy) [T, out] fp8(W). Types as in `linear_backward_input`; dy is rounded to `gradients`, fp8_e4m3
// or fp8_e5m2.
void linear_fp8_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                               Storage gradients, LinearAttributes attributes);

// What they are made of.

// q [R, K], storage fp8_e4m3 or fp8_e5m2 = x [R, K] of f32 or bf16, rounded to nearest even by rows. With `by` [K, n]
// of fp8, element k of every row is multiplied by the scale of by's row k first.
void quantize_fp8(Context& context, const Weight& q, const Tensor& x, const Weight& by);

struct QuantizeFp8 {
  static constexpr const char* name = "quantize_fp8";
  using Signature = void(Context&, const Weight&, const Tensor&, const Weight&);
};

// x [R, K] of f32 or bf16 = q [R, K]; with `by` element k of every row is divided by the scale of by's row k. Exact, as
// scales are powers of two.
void dequantize_fp8(Context& context, const Tensor& x, const Weight& q, const Weight& by);

struct DequantizeFp8 {
  static constexpr const char* name = "dequantize_fp8";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&);
};

// scales [R] f32 = those of q's rows, side by side.
void fp8_scales(Context& context, const Tensor& scales, const Weight& q);

struct Fp8Scales {
  static constexpr const char* name = "fp8_scales";
  using Signature = void(Context&, const Tensor&, const Weight&);
};

// y [T, out] (+)= x [T, in] W^T, and dx [T, in] (+)= dy [T, out] W with dy as quantize_fp8(.., by = W) left it: its
// elements still have the scales of W's rows in them, so those of W are not applied again.
struct ProductFp8 {
  static constexpr const char* name = "linear_fp8";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&, LinearAttributes);
};
struct InputProductFp8 {
  static constexpr const char* name = "linear_fp8_backward_input";
  using Signature = void(Context&, const Tensor&, const Weight&, const Weight&, LinearAttributes);
};

// Both by decoding the left operand to bf16 (or f32, as the result's activations are) and multiplying by `linear` and
// `linear_backward_input`: for devices without fp8 products.
void linear_fp8_decoded(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                        LinearAttributes attributes);
void linear_fp8_backward_input_decoded(Context& context, const Tensor& dx, const Weight& dy, const Weight& weight,
                                       LinearAttributes attributes);

}  // namespace ingot::ops
