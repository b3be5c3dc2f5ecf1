// Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv 1910.07467). Letters: T tokens, H features.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

struct RmsNormAttributes {
  float epsilon = 0;
  float weight_offset = 0;  // added to every weight: 1 in gemma, which stores the difference from 1
};

// y [T, H] = x * rstd * (weight_offset + weight), rstd [T] f32 = 1 / sqrt(mean(x^2) + epsilon). x and y are both f32,
// both bf16 or both f16; weight [H] f32; sums in fp32, one rounding at the end. rstd may be absent. y may be x.
void rms_norm(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              RmsNormAttributes attributes);

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, RmsNormAttributes);
};

struct RmsNormBackwardAttributes {
  bool accumulate_dx = false;       // add to dx (the residual's gradient) instead of assigning
  bool accumulate_dweight = false;  // add to dweight instead of assigning
  float weight_offset = 0;          // same as in the forward
};

// dx [T, H] = rstd (g - x rstd^2 mean(g x)), g = dy (weight_offset + weight); dweight [H] f32 = sum over T of dy x
// rstd, not computed when absent. The order of the sum over T depends on T only, never on the number of threads.
void rms_norm_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, RmsNormBackwardAttributes attributes);

struct RmsNormBackward {
  static constexpr const char* name = "rms_norm_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, RmsNormBackwardAttributes);
};

}  // namespace ingot::ops
