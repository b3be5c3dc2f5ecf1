// A linear layer with an additive low-rank term: LoRA (arXiv 2106.09685), whose second gemm accumulates into the
// layer's output.
#pragma once

#include "ops/context.h"
#include "ops/matmul.h"

namespace ingot::ops {

class Registry;

// y [T, out] (+)= x W^T + low b^T: W [out, in] of any storage, low [T, R] and b [out, R] of x's dtype, otherwise as
// linear. Implementations that compute both gemms in one pass round their sum once; the others round each. Scratch: as
// linear (ops/matmul_bytes.h). Errors: as linear.
void linear_low_rank(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& low,
                     const Tensor& b, LinearAttributes attributes);

struct LinearLowRank {
  static constexpr const char* name = "linear_low_rank";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, const Tensor&, const Tensor&,
                         LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors, true); }
};

// The input gradient: dx [T, in] (+)= dy W + low a, where low [T, R] is dy b times the adapter's scaling factor, and a
// [R, in] has dy's dtype; otherwise as linear_backward_input.
void linear_low_rank_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                                    const Tensor& low, const Tensor& a, LinearAttributes attributes);

struct LinearLowRankBackwardInput {
  static constexpr const char* name = "linear_low_rank_backward_input";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, const Tensor&, const Tensor&,
                         LinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors, true); }
};

// Registers implementations of both ops for any kind of device, named "apart": linear or linear_backward_input, then
// matmul. They decline no call, so a backend registers its own implementations before them.
void add_low_rank_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
