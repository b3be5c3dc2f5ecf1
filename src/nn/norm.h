// RMSNorm as a layer. Letters: T tokens, H features.
#pragma once

#include "nn/pass.h"

namespace ingot::nn {

struct Norm {
  Tensor weight;  // [H] f32
  float epsilon = 0;
  int trainable = -1;

  // y [T, H]; rstd [T] f32 may be absent when there will be no backward.
  void forward(Pass& pass, const Tensor& y, const Tensor& rstd, const Tensor& x) const;
  // dx (+)= the gradient of x; the weight's gradient into the sink, a unit at a time.
  void backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                bool accumulate) const;
};

}  // namespace ingot::nn
