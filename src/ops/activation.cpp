#include "ops/activation.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

const char* name(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu: return "gelu";
    case Activation::gelu_tanh: return "gelu_tanh";
  }
  throw_error(ErrorKind::internal, "activation {} does not exist", static_cast<int>(activation));
}

void activation(Context& context, const Tensor& y, const Tensor& x, Activation activation) {
  const char* op = Activate::name;
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check(op, "y", context, y, x.shape, {x.dtype});
  if (x.elements() == 0) return;
  dispatch<Activate>(context, y, x, activation);
}

void activation_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation activation) {
  const char* op = ActivateBackward::name;
  check_dtype(op, "x", x, optimizer_types);
  check_device(op, "x", context, x);
  check(op, "dy", context, dy, x.shape, {x.dtype});
  check(op, "dx", context, dx, x.shape, {x.dtype});
  if (x.elements() == 0) return;
  dispatch<ActivateBackward>(context, dx, dy, x, activation);
}

}  // namespace ingot::ops
