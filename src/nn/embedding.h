// Token embedding. Letters: T tokens, V vocabulary, H hidden.
#pragma once

#include "nn/pass.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Embedding {
  Weight table;  // [V, H]
  int trainable = -1;
  bool tied = false;  // the table is the output head too

  // x [T, H]: the rows of the batch's ids.
  void forward(Pass& pass, const Tensor& x) const;
  // The table's gradient into the sink, a unit at a time; nothing when it is frozen.
  void backward(Pass& pass, const Tensor& dx) const;
};

}  // namespace ingot::nn
