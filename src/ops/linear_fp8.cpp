#include "ops/linear_fp8.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

constexpr std::initializer_list<DType> real_types = {DType::f32, DType::bf16};

// An fp8 matrix [rows, width] in scratch memory.
Weight take_fp8(Context& context, StorageType storage, int64_t rows, int64_t width) {
  void* data = context.scratch.allocate_bytes(static_cast<size_t>(rows) * row_bytes(storage, width));
  return {storage, data, rows, width, &context.device};
}

Weight in_e4m3(Context& context, const Weight& weight) {
  if (weight.storage == StorageType::fp8_e4m3) return weight;
  const Weight rounded = take_fp8(context, StorageType::fp8_e4m3, weight.out, weight.in);
  quantize_fp8(context, rounded, weight.tensor(), {});
  return rounded;
}

// `result` [T, result_width] is computed from `given` [T, given_width].
void check_linear(const char* op, const Context& context, const Tensor& result, const char* result_name,
                  int64_t result_width, const Tensor& given, const char* given_name, int64_t given_width,
                  const Weight& weight) {
  check_device(op, "weight", context, weight);
  const StorageType storage = weight.storage;
  if (storage != StorageType::fp8_e4m3 && storage != StorageType::f32 && storage != StorageType::bf16) {
    throw_error(ErrorKind::internal, "{}: the weight is {}, it should be fp8_e4m3, f32 or bf16", op, weight.text());
  }
  check_rank(op, given_name, given, 2);
  check(op, given_name, context, given, Shape{given.shape[0], given_width}, real_types);
  check_shape(op, result_name, result, Shape{given.shape[0], result_width});
  check_dtype(op, result_name, result, {given.dtype, DType::f32});
  check_device(op, result_name, context, result);
}

void check_rows(const char* op, const Context& context, const Weight& q, const Tensor& x, const Weight& by) {
  check_device(op, "q", context, q);
  check(op, "x", context, x, Shape{q.out, q.in}, real_types);
  if (!is_fp8(q.storage)) throw_error(ErrorKind::internal, "{}: q is {}, it should be fp8", op, q.text());
  if (!by) return;
  check_device(op, "by", context, by);
  if (!is_fp8(by.storage) || by.out != q.in) {
    throw_error(ErrorKind::internal, "{}: by is {}, it should be fp8 of {} rows", op, by.text(), q.in);
  }
}

Tensor decoded(Context& context, const Weight& q, const Weight& by) {
  const Tensor x = context.scratch.allocate(DType::bf16, Shape{q.out, q.in});  // exact for any activation dtype
  dequantize_fp8(context, x, q, by);
  return x;
}

}  // namespace

void quantize_fp8(Context& context, const Weight& q, const Tensor& x, const Weight& by) {
  check_rows("quantize_fp8", context, q, x, by);
  if (x.elements() != 0) dispatch<QuantizeFp8>(context, q, x, by);
}

void dequantize_fp8(Context& context, const Tensor& x, const Weight& q, const Weight& by) {
  check_rows("dequantize_fp8", context, q, x, by);
  if (x.elements() != 0) dispatch<DequantizeFp8>(context, x, q, by);
}

void fp8_scales(Context& context, const Tensor& scales, const Weight& q) {
  check_device("fp8_scales", "q", context, q);
  check("fp8_scales", "scales", context, scales, Shape{q.out}, {DType::f32});
  if (!is_fp8(q.storage)) throw_error(ErrorKind::internal, "fp8_scales: q is {}, it should be fp8", q.text());
  if (scales.elements() != 0) dispatch<Fp8Scales>(context, scales, q);
}

void linear_fp8(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes) {
  check_linear("linear_fp8", context, y, "y", weight.out, x, "x", weight.in, weight);
  if (y.elements() == 0) return;
  const Arena::Scope scope(context.scratch);
  const Weight w = in_e4m3(context, weight);
  const Weight q = take_fp8(context, StorageType::fp8_e4m3, x.shape[0], weight.in);
  quantize_fp8(context, q, x, {});
  dispatch<GemmFp8>(context, y, q, w, with_residual_in(context, op_id<GemmFp8>, y, attributes));
}

void linear_fp8_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                               StorageType gradients, LinearAttributes attributes) {
  if (!is_fp8(gradients))
    throw_error(ErrorKind::internal, "linear_fp8_backward_input: gradients are {}, they should be fp8",
                name(gradients));
  check_linear("linear_fp8_backward_input", context, dx, "dx", weight.in, dy, "dy", weight.out, weight);
  if (dx.elements() == 0) return;
  const Arena::Scope scope(context.scratch);
  const Weight w = in_e4m3(context, weight);
  const Weight q = take_fp8(context, gradients, dy.shape[0], weight.out);
  quantize_fp8(context, q, dy, w);
  dispatch<GemmFp8BackwardInput>(context, dx, q, w, attributes);
}

void linear_fp8_decoded(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                        LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  linear(context, y, decoded(context, x, {}), weight, attributes);
}

void linear_fp8_backward_input_decoded(Context& context, const Tensor& dx, const Weight& dy, const Weight& weight,
                                       LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  linear_backward_input(context, dx, decoded(context, dy, weight), weight, attributes);
}

}  // namespace ingot::ops
