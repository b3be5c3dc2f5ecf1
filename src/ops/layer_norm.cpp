#include "ops/layer_norm.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void layer_norm(Context& context, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                const Tensor& weight, const Tensor& bias, float epsilon) {
  const char* op = LayerNorm::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check(op, "y", context, y, x.shape, {x.dtype});
  check(op, "weight", context, weight, {x.shape[1]}, {DType::f32});
  if (bias) check(op, "bias", context, bias, {x.shape[1]}, {DType::f32});
  if (mean) check(op, "mean", context, mean, {x.shape[0]}, {DType::f32});
  if (rstd) check(op, "rstd", context, rstd, {x.shape[0]}, {DType::f32});
  if (x.elements() == 0) return;
  dispatch<LayerNorm>(context, y, mean, rstd, x, weight, bias, epsilon);
}

void layer_norm_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, LayerNormBackwardAttributes attributes) {
  const char* op = LayerNormBackward::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, optimizer_types);
  check_device(op, "x", context, x);
  check(op, "dx", context, dx, x.shape, {x.dtype});
  check(op, "dy", context, dy, x.shape, {x.dtype});
  check(op, "weight", context, weight, {x.shape[1]}, {DType::f32});
  check(op, "mean", context, mean, {x.shape[0]}, {DType::f32});
  check(op, "rstd", context, rstd, {x.shape[0]}, {DType::f32});
  if (dweight) check(op, "dweight", context, dweight, {x.shape[1]}, {DType::f32});
  if (dbias) check(op, "dbias", context, dbias, {x.shape[1]}, {DType::f32});
  dispatch<LayerNormBackward>(context, dx, dweight, dbias, dy, x, weight, mean, rstd, attributes);
}

}  // namespace ingot::ops
