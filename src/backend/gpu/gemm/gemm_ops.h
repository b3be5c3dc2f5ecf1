// The ops of ops/matmul.h as gemms: what all gemm implementations for GPUs share. Host code.
#pragma once

#include <algorithm>

#include "backend/gpu/gemm/gemm.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"

namespace ingot::gpu {

// Any product, with our own kernels (matmul.gpu.cpp).
void multiply_tiles(ops::Context& context, const Gemm& product);
// y[.., columns from `first` on] = the lowest finite number; y is f32 or has no such columns (pad_columns.gpu.cpp).
void pad_columns(ops::Context& context, const Tensor& y, int64_t first);

inline Gemm gemm_of(const Tensor& c, const Tensor& a, const Tensor& b, ops::MatmulAttributes attributes) {
  return {.c = c.data,
          .a = a.data,
          .b = b.data,
          .m = c.shape[0],
          .n = c.shape[1],
          .k = a.shape[attributes.transpose_a ? 0 : 1],
          .lda = a.shape[1],
          .ldb = b.shape[1],
          .ldc = c.shape[1],
          .transpose_a = attributes.transpose_a,
          .transpose_b = attributes.transpose_b,
          .addend = attributes.accumulate ? c.data : nullptr,
          .in = a.dtype,
          .out = c.dtype,
          .invariance = attributes.invariance};
}

// A slice of rows of a weight as the gemm reads it. `begin` is also the slice's first column in activations of `out`
// columns.
struct WeightRows {
  int64_t begin, rows;
  const void* data;
};

// What a linear layer's result is added to: null, y or the residual.
inline const void* addend_of(const Tensor& y, const ops::LinearAttributes& attributes) {
  return attributes.accumulate ? y.data : attributes.residual.data;
}

inline std::byte* columns_from(const Tensor& tensor, int64_t column) {
  return static_cast<std::byte*>(tensor.data) + static_cast<size_t>(column) * size_of(tensor.dtype);
}

// `addend`: of all columns, or null.
inline Gemm linear_gemm(const Tensor& y, const Tensor& x, const Weight& weight, WeightRows slice, const void* addend,
                        ops::Invariance invariance = ops::Invariance::slices) {
  const size_t column_bytes = static_cast<size_t>(slice.begin) * size_of(y.dtype);
  return {.c = columns_from(y, slice.begin),
          .a = x.data,
          .b = slice.data,
          .m = x.shape[0],
          .n = slice.rows,
          .k = weight.in,
          .lda = weight.in,
          .ldb = weight.in,
          .ldc = y.shape[1],
          .transpose_b = true,
          .addend = addend == nullptr ? nullptr : static_cast<const std::byte*>(addend) + column_bytes,
          .in = x.dtype,
          .out = y.dtype,
          .invariance = invariance};
}

inline Gemm input_gradient_gemm(const Tensor& dx, const Tensor& dy, const Weight& weight, WeightRows slice,
                                bool accumulate, ops::Invariance invariance = ops::Invariance::slices) {
  return {.c = dx.data,
          .a = columns_from(dy, slice.begin),
          .b = slice.data,
          .m = dy.shape[0],
          .n = weight.in,
          .k = slice.rows,
          .lda = dy.shape[1],
          .ldb = weight.in,
          .ldc = weight.in,
          .addend = accumulate ? dx.data : nullptr,
          .in = dy.dtype,
          .out = dx.dtype,
          .invariance = invariance};
}

inline bool in_place(const Weight& weight, DType dtype) {
  return is_plain(weight.storage) && weight.tensor().dtype == dtype;
}

// Rows of a weight [out, in] that are decoded at a time.
using DecodedRows = int64_t (*)(int64_t out, int64_t in);
inline int64_t decoded_rows(int64_t out, int64_t in) { return ops::decoded_rows(out, in, false); }

// Calls body(WeightRows) for slices of the weight's rows, decoded into scratch where they are not stored as `dtype`.
template <DecodedRows rows_of, class Body>
void for_slices(ops::Context& context, const Weight& weight, DType dtype, Body body) {
  if (in_place(weight, dtype)) return body(WeightRows{0, weight.out, weight.data});
  const Arena::Scope scope(context.scratch);
  const int64_t max_rows = rows_of(weight.out, weight.in);
  void* rows = context.scratch.allocate_bytes(static_cast<size_t>(max_rows * weight.in) * size_of(dtype));
  for (int64_t begin = 0; begin < weight.out; begin += max_rows) {
    const Weight slice = weight.slice(begin, std::min(begin + max_rows, weight.out));
    ops::dequantize(context, {rows, dtype, {slice.out, slice.in}, &context.device}, slice);
    body(WeightRows{begin, slice.out, rows});
  }
}

// True if the input gradient must be accumulated in an fp32 buffer, because it is summed over several slices of a
// decoded weight and dx is not f32.
template <DecodedRows rows_of = decoded_rows>
bool staged(const Tensor& dx, const Tensor& dy, const Weight& weight) {
  return dx.dtype != DType::f32 && !in_place(weight, dy.dtype) && rows_of(weight.out, weight.in) < weight.out;
}

// The ops, implemented with `multiply`: void(ops::Context&, const Gemm&).
template <auto multiply>
void run_matmul(ops::Context& context, const Tensor& c, const Tensor& a, const Tensor& b,
                ops::MatmulAttributes attributes) {
  multiply(context, gemm_of(c, a, b, attributes));
}

template <auto multiply, DecodedRows rows_of = decoded_rows>
void run_linear(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                ops::LinearAttributes attributes) {
  for_slices<rows_of>(context, weight, x.dtype, [&](WeightRows slice) {
    multiply(context, linear_gemm(y, x, weight, slice, addend_of(y, attributes), attributes.invariance));
  });
  pad_columns(context, y, weight.out);
}

template <auto multiply, DecodedRows rows_of = decoded_rows>
void run_linear_backward_input(ops::Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                               ops::LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  const bool use_fp32_sums = staged<rows_of>(dx, dy, weight);
  const Tensor sums = use_fp32_sums ? context.scratch.allocate(DType::f32, dx.shape) : dx;
  if (use_fp32_sums && attributes.accumulate) ops::scale(context, sums, dx, 1.0F);
  for_slices<rows_of>(context, weight, dy.dtype, [&](WeightRows slice) {
    multiply(context, input_gradient_gemm(sums, dy, weight, slice, slice.begin > 0 || attributes.accumulate,
                                          attributes.invariance));
  });
  if (use_fp32_sums) ops::scale(context, dx, sums, 1.0F);
}

}  // namespace ingot::gpu
