#include "ops/rms_norm.h"

#include "ops/checks.h"
#include "ops/registry.h"

namespace ingot::ops {

void rms_norm(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              float epsilon) {
  const NamedTensors tensors = {{"y", y}, {"rstd", rstd}, {"x", x}, {"weight", weight}};
  const char* op = RmsNorm::name;
  require(x.shape.rank() == 2 && is_activation(x.dtype), op, "x [T, H] of f32 or bf16", tensors);
  require(is(y, x.dtype, x.shape), op, "y like x", tensors);
  require(is(weight, DType::f32, Shape{x.shape[1]}), op, "weight [H] f32", tensors);
  require(!rstd || is(rstd, DType::f32, Shape{x.shape[0]}), op, "rstd [T] f32 or absent", tensors);
  dispatch<RmsNorm>(context, y, rstd, x, weight, epsilon);
}

void rms_norm_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, RmsNormBackwardAttributes attributes) {
  const NamedTensors tensors = {{"dx", dx}, {"dweight", dweight}, {"dy", dy},
                                {"x", x},   {"weight", weight},   {"rstd", rstd}};
  const char* op = RmsNormBackward::name;
  require(x.shape.rank() == 2 && is_activation(x.dtype), op, "x [T, H] of f32 or bf16", tensors);
  require(is(dy, x.dtype, x.shape) && is(dx, x.dtype, x.shape), op, "dy and dx like x", tensors);
  require(is(weight, DType::f32, Shape{x.shape[1]}), op, "weight [H] f32", tensors);
  require(!dweight || is(dweight, DType::f32, weight.shape), op, "dweight [H] f32 or absent", tensors);
  require(is(rstd, DType::f32, Shape{x.shape[0]}), op, "rstd [T] f32", tensors);
  dispatch<RmsNormBackward>(context, dx, dweight, dy, x, weight, rstd, attributes);
}

}  // namespace ingot::ops
