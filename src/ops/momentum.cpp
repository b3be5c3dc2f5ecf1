#include "ops/momentum.h"

#include "ops/blockwise.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void check_update(const char* op, const Context& context, const MomentumState& state, const Tensor& gradient,
                  const Tensor& decision) {
  check(op, "gradient", context, gradient, gradient.shape, {DType::f32});
  check(op, "master", context, state.master, gradient.shape, {DType::f32, DType::bf16});
  check_state(op, "momentum", context, state.momentum, state.momentum_scales, gradient.shape);
  if (state.weight) check(op, "weight", context, state.weight, gradient.shape, {DType::bf16});
  if (decision) check(op, "decision", context, decision, Shape{3}, {DType::f64});
}

}  // namespace

void sgd(Context& context, const MomentumState& state, const Tensor& gradient, SgdAttributes attributes) {
  check_update("sgd", context, state, gradient, attributes.decision);
  if (gradient.elements() == 0) return;
  dispatch<Sgd>(context, state, gradient, attributes);
}

void lion(Context& context, const MomentumState& state, const Tensor& gradient, LionAttributes attributes) {
  check_update("lion", context, state, gradient, attributes.decision);
  if (gradient.elements() == 0) return;
  dispatch<Lion>(context, state, gradient, attributes);
}

}  // namespace ingot::ops
