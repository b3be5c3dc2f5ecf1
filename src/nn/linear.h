// A linear layer y = x W^T + b with low-rank adapters. Letters: T tokens, I in, O out, R rank.
#pragma once

#include "nn/pass.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Linear {
  Weight weight;         // [O, I]
  Tensor bias;           // [O] f32, absent where the layer has none
  size_t parameter = 0;  // index of the weight in spec::parameters: which adapter layer is ours
  size_t bias_parameter = 0;
  int weight_trainable = -1;  // place among the trained parameters, -1 when frozen
  int bias_trainable = -1;

  bool fp8 = false;  // multiplies in fp8 in a pass that asks for it (ops/linear_fp8.h)
  // The input's features are split over the tensor-parallel ranks (Split::columns): what each has of the output is
  // summed. Of other split layers the input's gradient is a summand, which the caller sums once for all of them.
  bool sums_over_ranks = false;

  explicit operator bool() const { return static_cast<bool>(weight); }

  // y [T, O] = x [T, I] W^T + b, plus each segment's adapter. With `accumulate` added to y.
  void forward(Pass& pass, const Tensor& y, const Tensor& x, bool accumulate = false) const;

  // dx [T, I] = the gradient of x (added to dx with `accumulate`; absent when not wanted), and the gradients of weight,
  // bias and adapters into the sink, a unit at a time. x is what forward read.
  void backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const;

  // Scratch bytes of forward and backward over `rows`, the larger, in a pass of this shape. `may_fp8`: as `fp8`.
  static size_t bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape, bool may_fp8 = true);
};

}  // namespace ingot::nn
