// A linear layer with a term of low rank: LoRA (arXiv 2106.09685), whose second product adds to what the layer
// computes.
#pragma once

#include "ops/context.h"
#include "ops/matmul.h"

namespace ingot::ops {

class Registry;

// y [T, out] (+)= x W^T + low b^T: W [out, in] of any storage, low [T, R] and b [out, R] of x's type, else as linear.
// Implementations that compute both products in one pass round their sum once; the others round each. Scratch: what
// linear takes (ops/matmul_bytes.h). Errors: as linear's.
void linear_low_rank(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& low,
                     const Tensor& b, LinearAttributes attributes);

struct LinearLowRank {
  static constexpr const char* name = "linear_low_rank";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, const Tensor&, const Tensor&,
                         LinearAttributes);
};

// The gradient of its input: dx [T, in] (+)= dy W + low a, with low [T, R], dy b times the adapter's factor, and
// a [R, in] of dy's type, else as linear_backward_input.
void linear_low_rank_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                                    const Tensor& low, const Tensor& a, LinearAttributes attributes);

struct LinearLowRankBackwardInput {
  static constexpr const char* name = "linear_low_rank_backward_input";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Weight&, const Tensor&, const Tensor&,
                         LinearAttributes);
};

// Adds implementations of both for any device, "apart": linear or linear_backward_input, then matmul. They decline
// nothing, so what a backend has of its own comes before them.
void add_low_rank_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
