// Receives the weight gradients that backward computes, one accumulation unit at a time. The implementation decides how
// contributions are added (assign the first and add in fp32, or add in int64 fixed point); layers do not depend on it.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace ingot::nn {

class GradientAccumulator {
 public:
  struct Slot {
    Tensor out;       // f32, the parameter's shape
    bool accumulate;  // add to `out` instead of assigning
  };

  virtual ~GradientAccumulator() = default;

  // Whether this step has added a contribution to `trainable` so far.
  virtual bool has(int trainable) const = 0;

  // The buffer for the contribution of unit `unit` (of the micro-batch) to trainable parameter `trainable`. Only one
  // slot is open at a time. `use` distinguishes the two uses of a tied embedding: 1 for the embedding lookup, 0 for the
  // output head and for every other parameter. Contributions of one use arrive in the order of the units; those of
  // different uses interleave depending on the micro-batch, so an accumulator whose sums depend on order keeps one sum
  // per use.
  virtual Slot open(int trainable, int64_t unit, int use) = 0;
  virtual void close(int trainable, int64_t unit, int use) = 0;
};

}  // namespace ingot::nn
