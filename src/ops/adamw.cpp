#include "ops/adamw.h"

#include "ops/blockwise.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void adamw(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes attributes) {
  check("adamw", "gradient", context, gradient, gradient.shape, {DType::f32});
  check("adamw", "master", context, state.master, gradient.shape, {DType::f32, DType::bf16});
  check_state("adamw", "moment1", context, state.moment1, state.moment1_scales, gradient.shape);
  check_state("adamw", "moment2", context, state.moment2, state.moment2_scales, gradient.shape);
  if ((state.moment1.dtype == DType::u8) != (state.moment2.dtype == DType::u8)) {
    throw_error(ErrorKind::internal, "adamw: moments of {} and {}", name(state.moment1.dtype),
                name(state.moment2.dtype));
  }
  if (state.weight) check("adamw", "weight", context, state.weight, gradient.shape, {DType::bf16});
  if (attributes.decision) check("adamw", "decision", context, attributes.decision, Shape{3}, {DType::f64});
  if (attributes.step < 1) throw_error(ErrorKind::internal, "adamw: step {}, steps count from 1", attributes.step);
  if (gradient.elements() == 0) return;
  dispatch<Adamw>(context, state, gradient, attributes);
}

void sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate) {
  check("sum_squares", "sum", context, sum, Shape{1}, {DType::f64});
  check("sum_squares", "x", context, x, x.shape, {DType::f32});
  dispatch<SumSquares>(context, sum, x, accumulate);
}

void decide_update(Context& context, const Tensor& decision, const Tensor& squares, const Tensor& loss_squares,
                   DecisionAttributes attributes) {
  check("decide_update", "decision", context, decision, Shape{3}, {DType::f64});
  check("decide_update", "squares", context, squares, Shape{squares.elements()}, {DType::f64});
  check("decide_update", "loss_squares", context, loss_squares, Shape{1}, {DType::f64});
  dispatch<DecideUpdate>(context, decision, squares, loss_squares, attributes);
}

}  // namespace ingot::ops
