#include "ops/rms_norm.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void rms_norm(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              RmsNormAttributes attributes) {
  const char* op = RmsNorm::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check(op, "y", context, y, x.shape, {x.dtype});
  check(op, "weight", context, weight, {x.shape[1]}, {DType::f32});
  if (rstd) check(op, "rstd", context, rstd, {x.shape[0]}, {DType::f32});
  if (x.elements() == 0) return;
  dispatch<RmsNorm>(context, y, rstd, x, weight, attributes);
}

void rms_norm_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, RmsNormBackwardAttributes attributes) {
  const char* op = RmsNormBackward::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, optimizer_types);
  check_device(op, "x", context, x);
  check(op, "dx", context, dx, x.shape, {x.dtype});
  check(op, "dy", context, dy, x.shape, {x.dtype});
  check(op, "weight", context, weight, {x.shape[1]}, {DType::f32});
  check(op, "rstd", context, rstd, {x.shape[0]}, {DType::f32});
  if (dweight) check(op, "dweight", context, dweight, {x.shape[1]}, {DType::f32});
  dispatch<RmsNormBackward>(context, dx, dweight, dy, x, weight, rstd, attributes);
}

}  // namespace ingot::ops
