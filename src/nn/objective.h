// What a model is trained for: the step between a batch's hidden states and the gradient of the hidden states. Letters:
// T tokens, H hidden.
#pragma once

#include "nn/head.h"

namespace ingot::nn {

class Objective {
 public:
  virtual ~Objective() = default;

  // normed [T, H]: the final norm's output. With pass.training the objective's gradient is computed: dnormed [T, H] is
  // assigned, and the head's gradients go to the accumulator, unit by unit; without it dnormed is absent and only the
  // objective's values are computed. Scratch comes from pass.ops.scratch.
  virtual void compute(Pass& pass, const Head& head, const Tensor& dnormed, const Tensor& normed) const = 0;
};

}  // namespace ingot::nn
