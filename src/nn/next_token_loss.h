// The next-token loss: output head and cross-entropy, computed in chunks so that the full logits never exist. Tensor-
// parallel ranks have the logits of their part of the vocabulary alone. Letters: T tokens, H hidden.
#pragma once

#include "nn/objective.h"

namespace ingot::nn {

class NextTokenLoss : public Objective {
 public:
  // losses [T] f32 is assigned each token's cross-entropy against targets [T] i32, 0 where the target is -1.
  NextTokenLoss(const Tensor& losses, const Tensor& targets) : losses_(losses), targets_(targets) {}

  // The gradient is that of the plain sum of losses. A chunk is at most spec::loss_chunk tokens of one accumulation
  // unit.
  void compute(Pass& pass, const Head& head, const Tensor& dnormed, const Tensor& normed) const override;

  // Scratch bytes of compute.
  static size_t bytes(const spec::ModelSpec& model, const PassShape& shape, bool training);

 private:
  Tensor losses_;
  Tensor targets_;
};

}  // namespace ingot::nn
