#include "ops/matmul.h"

#include "base/error.h"
#include "ops/check.h"
#include "ops/elementwise.h"
#include "ops/matmul_bytes.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

// The columns that `tensor`, a matrix of `columns`, should have: with padding, if that is what it has.
int64_t padded(const Context& context, OpId op, const char* name, const Tensor& tensor, int64_t columns) {
  const int64_t all = padded_columns(columns);
  if (all == columns || tensor.shape.rank() != 2 || tensor.shape[1] != all) return columns;
  if (!context.registry.supports(op, context.device.kind(), Registry::Feature::padded_columns)) {
    throw_error(ErrorKind::unsupported, "{}: {} has padded columns, for {} of them, which {} does not support", name,
                tensor.text(), columns, context.device.name());
  }
  return all;
}

}  // namespace

void matmul(Context& context, const Tensor& c, const Tensor& a, const Tensor& b, MatmulAttributes attributes) {
  check_rank("matmul", "c", c, 2);
  const int64_t m = c.shape[0];
  const int64_t n = c.shape[1];
  check_rank("matmul", "a", a, 2);
  const int64_t k = a.shape[attributes.transpose_a ? 0 : 1];
  const Shape stored_a =
      attributes.transpose_a ? Shape{k, padded(context, op_id<Matmul>, "matmul", a, m)} : Shape{m, k};
  check("matmul", "a", context, a, stored_a, forward_types);
  if (a.dtype == DType::f16) {
    check("matmul", "c", context, c, Shape{m, n}, {DType::f32, DType::f16});
  } else {
    check("matmul", "c", context, c, Shape{m, n}, {DType::f32, DType::bf16});
  }
  check("matmul", "b", context, b, attributes.transpose_b ? Shape{n, k} : Shape{k, n}, {a.dtype});
  if (c.elements() == 0) return;
  dispatch<Matmul>(context, c, a, b, attributes);
}

LinearAttributes with_residual_in(Context& context, OpId op, const Tensor& y, LinearAttributes attributes) {
  if (!attributes.residual) return attributes;
  check("linear", "residual", context, attributes.residual, y.shape, {y.dtype});
  if (attributes.accumulate) throw_error(ErrorKind::internal, "linear: a residual and a sum in y");
  if (context.registry.supports(op, context.device.kind(), Registry::Feature::residual)) return attributes;
  scale(context, y, attributes.residual, 1);
  attributes.residual = {};
  attributes.accumulate = true;
  return attributes;
}

void linear(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, LinearAttributes attributes) {
  const int64_t columns = y.dtype == DType::f32 ? padded(context, op_id<Linear>, "linear", y, weight.out) : weight.out;
  check_linear("linear", context, y, "y", columns, x, "x", weight.in, weight, forward_types);
  if (columns > weight.out && (attributes.accumulate || attributes.residual))
    throw_error(ErrorKind::internal, "linear: a sum in padded columns");
  if (y.elements() == 0) return;
  dispatch<Linear>(context, y, x, weight, with_residual_in(context, op_id<Linear>, y, attributes));
}

void linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                           LinearAttributes attributes) {
  check_linear("linear_backward_input", context, dx, "dx", weight.in, dy, "dy",
               padded(context, op_id<LinearBackwardInput>, "linear_backward_input", dy, weight.out), weight,
               optimizer_types);
  if (attributes.residual) throw_error(ErrorKind::internal, "linear_backward_input: a residual");
  if (dx.elements() == 0) return;
  dispatch<LinearBackwardInput>(context, dx, dy, weight, attributes);
}

void dequantize(Context& context, const Tensor& out, const Weight& weight) {
  check_device("dequantize", "weight", context, weight);
  check("dequantize", "out", context, out, Shape{weight.out, weight.in}, forward_types);
  if (out.elements() == 0) return;
  dispatch<Dequantize>(context, out, weight);
}

}  // namespace ingot::ops
