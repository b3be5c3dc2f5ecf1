// Gated activations of MLPs (Shazeer 2020, arXiv 2002.05202): SwiGLU, GeGLU. Letters: T tokens, F features.
#pragma once

#include "ops/activation.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// y = activation(gate) up. All [T, F] and all f32, all bf16 or all f16; in fp32, rounded once. y may be gate or up.
void glu(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up, Activation activation);

struct Glu {
  static constexpr const char* name = "glu";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, Activation);
};

// y [T, F] = activation(gate) up, where the columns of x [T, 2 F] are gate's, then up's. Both of one type, as above; y
// shares no memory with x.
void glu_joined(Context& context, const Tensor& y, const Tensor& x, Activation activation);

struct GluJoined {
  static constexpr const char* name = "glu_joined";
  using Signature = void(Context&, const Tensor&, const Tensor&, Activation);
};

// Assigns dgate = dy up activation'(gate) and dup = dy activation(gate). dgate may be gate, dup may be up.
void glu_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                  const Tensor& up, Activation activation);

struct GluBackward {
  static constexpr const char* name = "glu_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         Activation);
};

}  // namespace ingot::ops
