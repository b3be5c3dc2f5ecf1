// Matrix products. Letters: M rows of the result, N columns, K summed.
#pragma once

#include <string>

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

struct MatmulAttributes {
  bool transpose_a = false;  // a is stored [K, M]
  bool transpose_b = false;  // b is stored [N, K]
  bool accumulate = false;   // add to c instead of assigning
};

// c [M, N] = op(a) [M, K] op(b) [K, N]. a and b are both f32, both bf16 or both f16; c is f32 or, of f16, f16, else
// bf16. Sums in fp32, in an order that depends on K only: never on M, N or the number of threads, so any slice of rows
// or columns has the same bits. (On GPUs a vendor's library may have an order of its own for calls whose rows are whole
// multiples of 16 bytes.)
void matmul(Context& context, const Tensor& c, const Tensor& a, const Tensor& b, MatmulAttributes attributes);

struct Matmul {
  static constexpr const char* name = "matmul";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, MatmulAttributes);
};

struct LinearAttributes {
  bool accumulate = false;  // add to the output instead of assigning
  // A row's bits do not depend on how many rows there are. Without it, few rows may be summed in an order of their own:
  // on CPUs up to 2, on GPUs up to 16. Within these a row's bits do not depend on the number either, so that a sequence
  // that is decoded alone agrees with itself in a batch.
  bool any_rows = false;
  // With any_rows: most calls that must agree have few rows, so that what is best for these is taken for all.
  bool mostly_few = false;
};

// y [T, out] = x [T, in] W^T, W [out, in] of any storage. x and y are alike, f32, bf16 or f16 (y may be f32 with any
// x). Storage other than x's type is decoded to x's type (rounded to nearest even), a slice of rows at a time.
void linear(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes);

struct Linear {
  static constexpr const char* name = "linear";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, LinearAttributes);
};

// The gradient of linear's input: dx [T, in] = dy [T, out] W. dy is f32 or bf16; dx has its type or f32.
// Accumulating over slices of a decoded weight is done in fp32 and rounded once.
void linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                           LinearAttributes attributes);

struct LinearBackwardInput {
  static constexpr const char* name = "linear_backward_input";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, LinearAttributes);
};

// The gradient of the weight, dW [out, in] (+)= dy^T x, is matmul with transpose_a.

// out [R, in] of f32, bf16 or f16 = the decoded rows of `weight` (R = weight.out).
void dequantize(Context& context, const Tensor& out, const Weight& weight);

struct Dequantize {
  static constexpr const char* name = "dequantize";
  using Signature = void(Context&, const Tensor&, const Weight&);
};

}  // namespace ingot::ops
