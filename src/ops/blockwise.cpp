#include "ops/blockwise.h"

#include "base/error.h"
#include "ops/check.h"

namespace ingot::ops {

void check_state(const char* op, const char* what, const Context& context, const Tensor& state, const Tensor& scales,
                 const Shape& shape) {
  check(op, what, context, state, shape, {DType::f32, DType::bf16, DType::u8});
  if (state.elements() == 0) return;  // its scales are absent
  if ((state.dtype == DType::u8) != static_cast<bool>(scales)) {
    throw_error(ErrorKind::internal, "{}: {} of {} {} scales", op, what, name(state.dtype),
                scales ? "with" : "without");
  }
  if (scales) check(op, what, context, scales, Shape{blockwise_blocks(state.elements())}, {DType::f32});
}

}  // namespace ingot::ops
