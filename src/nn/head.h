// The output head: from the final norm to logits. Letters: R rows, V vocabulary, or this rank's part of it, H hidden.
#pragma once

#include "nn/linear.h"

namespace ingot::nn {

struct Head {
  Linear linear;
  int64_t first = 0;       // the part's first token (spec::vocabulary_of)
  int64_t vocabulary = 0;  // tokens of the whole vocabulary
  float scale = 1;         // of the logits; applied before the softcap
  float softcap = 0;       // logits become c tanh(logit / c); 0: no softcap

  bool is_part() const { return linear.weight.out < vocabulary; }
  // Whether forward and backward take logits and dlogits with padded columns (ops/matmul.h): on devices that support
  // them, where the gemm alone assigns the logits, as other ops would change the padding.
  bool takes_padding(const Pass& pass) const;
  // Of a whole head: the columns with which the logits of `rows` rows in serving are computed fastest, V or with
  // padding.
  int64_t logit_columns(const Pass& pass, int64_t rows) const;

  // logits [R, V] f32 of normed [R, H].
  void forward(Pass& pass, const Tensor& logits, const Tensor& normed) const;

  // dnormed [R, H] is assigned, the sum over the ranks' parts, and the head's gradients go to the accumulator. dlogits
  // [R, V], f32 with a softcap and otherwise of the activation dtype, is overwritten. logits is forward's result, read
  // with a softcap only.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dlogits, const Tensor& logits,
                const Tensor& normed) const;
};

}  // namespace ingot::nn
