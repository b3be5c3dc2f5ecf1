// A linear layer with a bias.
#pragma once

#include "ops/context.h"
#include "ops/matmul.h"

namespace ingot::ops {

class Registry;

// y [T, out] (+)= x W^T + bias, with bias [out] f32 in every row, otherwise as linear without padding. Implementations
// that compute all of it in one pass (vendors' libraries) round the bias to y's type and the sum once; the others add
// the bias to linear's rounded result. Scratch: as linear (ops/matmul_bytes.h), or linear_bias_bytes if that is more.
// Errors: as linear.
void linear_bias(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& bias,
                 LinearAttributes attributes);

struct LinearBias {
  static constexpr const char* name = "linear_bias";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, const Tensor&, LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

// Registers the implementation "apart" for any kind of device: linear, then add_bias. It declines no call, so a backend
// registers its own implementations before it.
void add_linear_bias_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
