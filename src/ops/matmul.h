// Matrix multiplication. Letters: M rows of the result, N columns, K the summed dimension.
//
// Padded columns: libraries want rows that begin at multiples of 16 bytes, which those of logits do not for most
// vocabularies. On devices whose implementations take them (Registry::Feature, GPUs) the columns of these matrices may
// therefore be rounded up to a multiple of 8: of y of `linear`, in f32, of dy of linear_backward_input, and of a
// transposed `a` of `matmul`. Those of y are assigned the lowest finite number, of which softmax makes 0; the others
// are not read. Elsewhere: ErrorKind::unsupported.
#pragma once

#include <cstdint>
#include <string>

#include "ops/context.h"
#include "ops/invariance.h"
#include "tensor/weight.h"

namespace ingot::ops {

enum class OpId : uint16_t;

struct MatmulAttributes {
  bool transpose_a = false;  // a is stored [K, M]
  bool transpose_b = false;  // b is stored [N, K]
  bool accumulate = false;   // add to c instead of assigning
  Invariance invariance = Invariance::slices;
};

// c [M, N] = op(a) [M, K] op(b) [K, N]. a and b are both f32, both bf16 or both f16; c is f32, or f16 for f16 operands,
// else bf16. Sums in fp32, in an order that depends on K only, never on M, N or the number of threads, so any slice of
// rows or columns has the same bits; attributes.invariance may ask for less. (On GPUs a vendor's library may use
// another order for calls whose rows are multiples of 16 bytes.)
void matmul(Context& context, const Tensor& c, const Tensor& a, const Tensor& b, MatmulAttributes attributes);

struct Matmul {
  static constexpr const char* name = "matmul";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, MatmulAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

// GPUs may use another summation order for up to so many rows, with kernels that need no padding.
inline constexpr int64_t max_skinny_rows = 16;

struct LinearAttributes {
  bool accumulate = false;  // add to the output instead of assigning
  // If not absent, y is the sum of this tensor, of y's shape and dtype, and the layer's result: the bits of copying it
  // to y and accumulating. It does not overlap with y. Forward only, and not with `accumulate`.
  Tensor residual = {};
  // A row's bits do not depend on the number of rows, as far as `invariance` asks for it. Without row_invariant, calls
  // with few rows (up to 2 on CPUs, up to max_skinny_rows on GPUs) may use another summation order. Up to that limit a
  // row's bits do not depend on the number of rows either, so a sequence that is decoded alone gets the same bits as in
  // a small batch.
  bool row_invariant = false;
  // With row_invariant: most of the calls that must agree have few rows, so the implementation that is best for few
  // rows is used for all of them.
  bool prefer_skinny = false;
  // Of the calls that are not skinny gemms.
  Invariance invariance = Invariance::slices;
};

// y [T, out] = x [T, in] W^T, W [out, in] of any storage. x and y have the same dtype, f32, bf16 or f16 (y may also be
// f32 with any x). Weights stored in another type than x's are decoded to x's dtype (rounded to nearest even), a slice
// of rows at a time.
void linear(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes);

// The attributes for a call of `op` with the result y. Where implementations do not read a residual
// (Registry::Feature), it is copied to y, to which they then add. Errors: internal for a residual that does not fit y.
LinearAttributes with_residual_in(Context& context, OpId op, const Tensor& y, LinearAttributes attributes);

struct Linear {
  static constexpr const char* name = "linear";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

// The input gradient of linear: dx [T, in] = dy [T, out] W. dy is f32 or bf16; dx has its dtype or f32. Partial sums
// over the slices of a decoded weight are accumulated in fp32 and rounded once.
void linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                           LinearAttributes attributes);

struct LinearBackwardInput {
  static constexpr const char* name = "linear_backward_input";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

// The weight gradient, dW [out, in] (+)= dy^T x, is matmul with transpose_a.

// out [R, in] of f32, bf16 or f16 = the decoded rows of `weight` (R = weight.out).
void dequantize(Context& context, const Tensor& out, const Weight& weight);

struct Dequantize {
  static constexpr const char* name = "dequantize";
  using Signature = void(Context&, const Tensor&, const Weight&);
  static OpWork work(const Tensor& out, const Weight& weight) { return recoding_work(out, weight); }
};

}  // namespace ingot::ops
