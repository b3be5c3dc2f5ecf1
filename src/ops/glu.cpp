#include "ops/glu.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void glu(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up, Activation activation) {
  const char* op = Glu::name;
  check_dtype(op, "gate", gate, forward_types);
  check_device(op, "gate", context, gate);
  check(op, "up", context, up, gate.shape, {gate.dtype});
  check(op, "y", context, y, gate.shape, {gate.dtype});
  if (gate.elements() == 0) return;
  dispatch<Glu>(context, y, gate, up, activation);
}

void glu_joined(Context& context, const Tensor& y, const Tensor& x, Activation activation) {
  const char* op = GluJoined::name;
  check_rank(op, "y", y, 2);
  check(op, "y", context, y, y.shape, forward_types);
  check(op, "x", context, x, Shape{y.shape[0], 2 * y.shape[1]}, {y.dtype});
  if (y.elements() == 0) return;
  dispatch<GluJoined>(context, y, x, activation);
}

void glu_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                  const Tensor& up, Activation activation) {
  const char* op = GluBackward::name;
  check_dtype(op, "gate", gate, optimizer_types);
  check_device(op, "gate", context, gate);
  check(op, "up", context, up, gate.shape, {gate.dtype});
  check(op, "dy", context, dy, gate.shape, {gate.dtype});
  check(op, "dgate", context, dgate, gate.shape, {gate.dtype});
  check(op, "dup", context, dup, gate.shape, {gate.dtype});
  if (gate.elements() == 0) return;
  dispatch<GluBackward>(context, dgate, dup, dy, gate, up, activation);
}

}  // namespace ingot::ops
