#include "ops/linear_int8.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void check_int8_weight(const char* op, const Weight& weight) {
  if (has_linear_int8(weight.storage)) return;
  throw_error(ErrorKind::internal, "{}: the weight is {}, it should be q8_0 or q4_0", op, weight.text());
}

void linear_int8(Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                 LinearAttributes attributes) {
  constexpr const char* op = "linear_int8";
  check_device(op, "weight", context, weight);
  check_int8_weight(op, weight);
  check_rank(op, "x", x, 2);
  check(op, "x", context, x, Shape{x.shape[0], weight.in}, {DType::f32, DType::bf16, DType::f16});
  check_shape(op, "y", y, Shape{x.shape[0], weight.out});
  check_dtype(op, "y", y, {x.dtype, DType::f32});
  check_device(op, "y", context, y);
  if (y.elements() == 0) return;
  dispatch<LinearInt8>(context, y, x, weight, with_residual_in(context, op_id<LinearInt8>, y, attributes));
}

}  // namespace ingot::ops
