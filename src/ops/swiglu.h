// The gated activation of llama's MLP (Shazeer 2020, arXiv 2002.05202). Letters: T tokens, F features.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// y = silu(gate) up, silu(z) = z / (1 + exp(-z)). All [T, F], f32 or bf16, alike. y may be gate or up.
void swiglu(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up);

struct Swiglu {
  static constexpr const char* name = "swiglu";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

// Assigns dgate = dy up silu'(gate) and dup = dy silu(gate). dgate may be gate, dup may be up.
void swiglu_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                     const Tensor& up);

struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
};

}  // namespace ingot::ops
