#include "ops/elementwise.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void add(Context& context, const Tensor& y, const Tensor& a, const Tensor& b) {
  check_dtype("add", "y", y, {DType::f32, DType::bf16});
  check_place("add", "y", context, y);
  for (const auto& [what, x] : {std::pair("a", &a), std::pair("b", &b)}) {
    check_dtype("add", what, *x, {y.dtype});
    check_place("add", what, context, *x);
    if (x->elements() != y.elements()) {
      throw_error(ErrorKind::internal, "add: {} is {}, y is {}", what, x->text(), y.text());
    }
  }
  if (y.elements() == 0) return;
  dispatch<Add>(context, y, a, b);
}

void scale(Context& context, const Tensor& y, const Tensor& x, float factor) {
  check_dtype("scale", "y", y, {DType::f32, DType::bf16});
  check_dtype("scale", "x", x, {DType::f32, DType::bf16, DType::f16});
  check_place("scale", "y", context, y);
  check_place("scale", "x", context, x);
  if (x.elements() != y.elements()) {
    throw_error(ErrorKind::internal, "scale: x is {}, y is {}", x.text(), y.text());
  }
  if (y.data == x.data && y.dtype != x.dtype && y) {
    throw_error(ErrorKind::internal, "scale: x, {}, and y, {}, share memory", x.text(), y.text());
  }
  if (y.elements() == 0) return;
  dispatch<Scale>(context, y, x, factor);
}

void add_bias(Context& context, const Tensor& y, const Tensor& bias) {
  check_rank("add_bias", "y", y, 2);
  check_dtype("add_bias", "y", y, {DType::f32, DType::bf16});
  check_place("add_bias", "y", context, y);
  check("add_bias", "bias", context, bias, Shape{y.shape[1]}, {DType::f32});
  if (y.elements() == 0) return;
  dispatch<AddBias>(context, y, bias);
}

void add_bias_backward(Context& context, const Tensor& dbias, const Tensor& dy, bool accumulate) {
  check_rank("add_bias_backward", "dy", dy, 2);
  check_dtype("add_bias_backward", "dy", dy, {DType::f32, DType::bf16});
  check_place("add_bias_backward", "dy", context, dy);
  check("add_bias_backward", "dbias", context, dbias, Shape{dy.shape[1]}, {DType::f32});
  if (dbias.elements() == 0) return;
  dispatch<AddBiasBackward>(context, dbias, dy, accumulate);
}

void dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows, DropoutAttributes attributes) {
  check_rank("dropout", "x", x, 2);
  check_dtype("dropout", "x", x, {DType::f32, DType::bf16});
  check_place("dropout", "x", context, x);
  check("dropout", "y", context, y, x.shape, {x.dtype});
  check("dropout", "rows", context, rows, Shape{x.shape[0]}, {DType::i64});
  if (!(attributes.probability >= 0.0F && attributes.probability < 1.0F)) {
    throw_error(ErrorKind::internal, "dropout: the probability is {}, it should be in [0, 1)", attributes.probability);
  }
  if (x.elements() == 0) return;
  dispatch<Dropout>(context, y, x, rows, attributes);
}

}  // namespace ingot::ops
