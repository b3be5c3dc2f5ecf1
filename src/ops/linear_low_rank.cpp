#include "ops/linear_low_rank.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

// `factor` is [width, R] if `transposed`, else [R, width].
void check_term(const char* op, const Context& context, const Tensor& given, const Tensor& low, const Tensor& factor,
                int64_t width, bool transposed) {
  check_rank(op, "low", low, 2);
  const int64_t rank = low.shape[1];
  check(op, "low", context, low, Shape{given.shape[0], rank}, {given.dtype});
  check(op, transposed ? "b" : "a", context, factor, transposed ? Shape{width, rank} : Shape{rank, width},
        {given.dtype});
}

void run_linear_apart(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& low,
                      const Tensor& b, LinearAttributes attributes) {
  linear(context, y, x, weight, attributes);
  matmul(context, y, low, b, {.transpose_b = true, .accumulate = true, .invariance = attributes.invariance});
}

void run_backward_input_apart(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                              const Tensor& low, const Tensor& a, LinearAttributes attributes) {
  linear_backward_input(context, dx, dy, weight, attributes);
  matmul(context, dx, low, a, {.accumulate = true, .invariance = attributes.invariance});
}

}  // namespace

void linear_low_rank(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& low,
                     const Tensor& b, LinearAttributes attributes) {
  check_linear("linear_low_rank", context, y, "y", weight.out, x, "x", weight.in, weight, forward_types);
  check_term("linear_low_rank", context, x, low, b, weight.out, true);
  if (y.elements() == 0) return;
  dispatch<LinearLowRank>(context, y, x, weight, low, b,
                          with_residual_in(context, op_id<LinearLowRank>, y, attributes));
}

void linear_low_rank_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                                    const Tensor& low, const Tensor& a, LinearAttributes attributes) {
  const char* op = "linear_low_rank_backward_input";
  check_linear(op, context, dx, "dx", weight.in, dy, "dy", weight.out, weight, optimizer_types);
  check_term(op, context, dy, low, a, weight.in, false);
  if (dx.elements() == 0) return;
  dispatch<LinearLowRankBackwardInput>(context, dx, dy, weight, low, a, attributes);
}

void add_low_rank_apart(Registry& registry, DeviceKind kind) {
  registry.add<LinearLowRank>(kind, "apart", run_linear_apart);
  registry.add<LinearLowRankBackwardInput>(kind, "apart", run_backward_input_apart);
}

}  // namespace ingot::ops
