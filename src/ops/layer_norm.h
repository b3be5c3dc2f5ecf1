// Layer normalisation (Ba, Kiros and Hinton 2016, arXiv 1607.06450). Letters: T tokens, H features.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// y [T, H] = (x - mean) rstd weight + bias; mean [T] f32 of the row, rstd [T] f32 = 1 / sqrt(mean((x - mean)^2) +
// epsilon). x and y are both f32, both bf16 or both f16; weight and bias [H] f32; sums in fp32, one rounding at the
// end. mean, rstd and bias may be absent. y may be x.
void layer_norm(Context& context, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                const Tensor& weight, const Tensor& bias, float epsilon);

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, float);
};

struct LayerNormBackwardAttributes {
  bool accumulate_dx = false;       // add to dx (the residual's gradient) instead of assigning
  bool accumulate_dweight = false;  // add to dweight and dbias instead of assigning
};

// With u = (x - mean) rstd and g = dy weight: dx [T, H] = rstd (g - mean(g) - u mean(g u)); dweight [H] f32 = sum over
// T of dy u, dbias [H] f32 = sum over T of dy, each not computed when absent. The order of the sums over T depends on T
// only, never on the number of threads. dx may be dy.
void layer_norm_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, LayerNormBackwardAttributes attributes);

struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, const Tensor&, const Tensor&, LayerNormBackwardAttributes);
};

}  // namespace ingot::ops
