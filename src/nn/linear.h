// A linear layer y = x W^T + b with low-rank adapters. Letters: T tokens, I in, O out, R rank.
#pragma once

#include "nn/pass.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Linear {
  Weight weight;              // [O, I]
  Tensor bias;                // [O] f32, absent where the layer has none
  size_t parameter = 0;       // index of the weight in spec::parameters: which adapter layer is ours
  int weight_trainable = -1;  // place among the trained parameters, -1 when frozen
  int bias_trainable = -1;

  // y [T, O] = x [T, I] W^T + b, plus each segment's adapter. With `accumulate` added to y.
  void forward(Pass& pass, const Tensor& y, const Tensor& x, bool accumulate = false) const;

  // dx [T, I] = the gradient of x (added to dx with `accumulate`; absent when not wanted), and the gradients of weight,
  // bias and adapters into the sink, a unit at a time. x is what forward read.
  void backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const;

  // Scratch bytes of forward and backward over `tokens`, the larger; rank 0 for no adapter.
  static size_t bytes(int64_t tokens, int64_t out, int64_t in, int64_t rank, size_t activation_bytes, bool decoded);
};

}  // namespace ingot::nn
