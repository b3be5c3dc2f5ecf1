// Activation functions of MLPs without a gate; ops/glu.h has the gated ones.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// silu(z) = z / (1 + exp(-z)); gelu(z) = z Phi(z), Phi(z) = (1 + erf(z / sqrt 2)) / 2 (Hendrycks and Gimpel 2016, arXiv
// 1606.08415); gelu_tanh uses that paper's approximation Phi(z) ~ (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2.
enum class Activation { silu, gelu, gelu_tanh };

const char* name(Activation activation);

// y = activation(x), of the same number of elements and dtype: f32, bf16 or f16. Computed in fp32 and rounded once. y
// may be x.
void activation(Context& context, const Tensor& y, const Tensor& x, Activation activation);

struct Activate {
  static constexpr const char* name = "activation";
  using Signature = void(Context&, const Tensor&, const Tensor&, Activation);
};

// Assigns dx = dy activation'(x). dx may be dy or x.
void activation_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation activation);

struct ActivateBackward {
  static constexpr const char* name = "activation_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, Activation);
};

}  // namespace ingot::ops
