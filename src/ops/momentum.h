// Optimizers that keep one moment: SGD with momentum, and Lion (Chen et al. 2023, arXiv 2302.06675).
#pragma once

#include <array>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// The state of one parameter of n elements.
struct MomentumState {
  Tensor master;    // [n] f32 or bf16: the weight that is updated
  Tensor momentum;  // [n] f32, bf16 or u8
  Tensor weight;    // [n] bf16 copy that the model computes with; absent when the model uses `master` itself
  // [ceil(n / 256)] f32, with a momentum of u8 codes (ops/blockwise.h), which is decoded, updated and encoded again, a
  // block at a time.
  Tensor momentum_scales{};
  std::array<Tensor, 4> tensors() const { return {master, momentum, weight, momentum_scales}; }
};

struct SgdAttributes {
  float lr = 0;
  float momentum = 0.9F;
  float weight_decay = 0;
  float gradient_scale = 1;  // multiplies the gradient first: 1 / loss tokens, times the clipping factor
  // [3] f64, the result of decide_update (ops/adamw.h); may be absent. When present, decision[1] replaces
  // `gradient_scale`, and the update is skipped when decision[2] is not 0.
  Tensor decision{};
};

// g = gradient_scale * gradient + weight_decay * master; m = momentum * m + g; master -= lr * m: torch.optim.SGD, whose
// weight decay is part of the gradient. gradient [n] f32.
void sgd(Context& context, const MomentumState& state, const Tensor& gradient, SgdAttributes attributes);

struct Sgd {
  static constexpr const char* name = "sgd";
  using Signature = void(Context&, const MomentumState&, const Tensor&, SgdAttributes);
};

struct LionAttributes {
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.99F;
  float weight_decay = 0;
  float gradient_scale = 1;  // as SgdAttributes, also `decision`
  Tensor decision{};
};

// g = gradient_scale * gradient; master -= lr * weight_decay * master; master -= lr * sign(b1 m + (1-b1) g), where the
// sign of 0 is 0; then m = b2 m + (1-b2) g. gradient [n] f32.
void lion(Context& context, const MomentumState& state, const Tensor& gradient, LionAttributes attributes);

struct Lion {
  static constexpr const char* name = "lion";
  using Signature = void(Context&, const MomentumState&, const Tensor&, LionAttributes);
};

}  // namespace ingot::ops
