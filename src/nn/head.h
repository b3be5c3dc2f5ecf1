// The output head: from the final norm to logits. Letters: R rows, V vocabulary, H hidden.
#pragma once

#include "nn/linear.h"

namespace ingot::nn {

struct Head {
  Linear linear;
  float scale = 1;    // of the logits
  float softcap = 0;  // then logits become c tanh(logit / c); 0: not

  // logits [R, V] f32 of normed [R, H].
  void forward(Pass& pass, const Tensor& logits, const Tensor& normed) const;

  // dnormed [R, H] is assigned, the head's gradients go into the sink. dlogits [R, V], f32 with a cap and otherwise of
  // the activations' type, is overwritten; logits is what forward made, read with a cap only.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dlogits, const Tensor& logits,
                const Tensor& normed) const;
};

}  // namespace ingot::nn
