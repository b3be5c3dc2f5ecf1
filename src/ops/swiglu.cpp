#include "ops/swiglu.h"

#include "ops/checks.h"
#include "ops/registry.h"

namespace ingot::ops {

void swiglu(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up) {
  const NamedTensors tensors = {{"y", y}, {"gate", gate}, {"up", up}};
  require(is_activation(gate.dtype), Swiglu::name, "gate of f32 or bf16", tensors);
  require(is(y, gate.dtype, gate.shape) && is(up, gate.dtype, gate.shape), Swiglu::name, "y and up like gate", tensors);
  dispatch<Swiglu>(context, y, gate, up);
}

void swiglu_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                     const Tensor& up) {
  const NamedTensors tensors = {{"dgate", dgate}, {"dup", dup}, {"dy", dy}, {"gate", gate}, {"up", up}};
  const char* op = SwigluBackward::name;
  require(is_activation(gate.dtype), op, "gate of f32 or bf16", tensors);
  require(is(up, gate.dtype, gate.shape) && is(dy, gate.dtype, gate.shape), op, "up and dy like gate", tensors);
  require(is(dgate, gate.dtype, gate.shape) && is(dup, gate.dtype, gate.shape), op, "dgate and dup like gate", tensors);
  dispatch<SwigluBackward>(context, dgate, dup, dy, gate, up);
}

}  // namespace ingot::ops
