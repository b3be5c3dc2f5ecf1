#include "ops/linear_bias.h"

#include "ops/check.h"
#include "ops/elementwise.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void run_bias_apart(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& bias,
                    LinearAttributes attributes) {
  linear(context, y, x, weight, attributes);
  add_bias(context, y, bias);
}

}  // namespace

void linear_bias(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& bias,
                 LinearAttributes attributes) {
  check_linear("linear_bias", context, y, "y", weight.out, x, "x", weight.in, weight, forward_types);
  check("linear_bias", "bias", context, bias, Shape{weight.out}, {DType::f32});
  if (y.elements() == 0) return;
  dispatch<LinearBias>(context, y, x, weight, bias, with_residual_in(context, op_id<Linear>, y, attributes));
}

void add_linear_bias_apart(Registry& registry, DeviceKind kind) {
  registry.add<LinearBias>(kind, "apart", run_bias_apart);
}

}  // namespace ingot::ops
