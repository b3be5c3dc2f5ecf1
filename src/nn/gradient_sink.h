// Where backward hands the gradients of weights, one unit of work at a time. The sink decides what adding means (assign
// the first and add in fp32, or add in int64 fixed point), so that layers need not know.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace ingot::nn {

class GradientSink {
 public:
  struct Slot {
    Tensor out;       // f32, the parameter's shape
    bool accumulate;  // add to `out` instead of assigning
  };

  virtual ~GradientSink() = default;

  // Whether the step has brought a contribution to `trainable` so far.
  virtual bool has(int trainable) const = 0;

  // Where the contribution of unit `unit` (of the micro-batch) to trained parameter `trainable` goes. One slot is open
  // at a time. `use` tells apart the uses of a parameter that has two: 1 for the look-up of an embedding that is also
  // the head, 0 for everything else. Contributions of one use come in the order of the units; those of two uses
  // interleave as the micro-batch has it, so a sink whose sums depend on order keeps them apart.
  virtual Slot open(int trainable, int64_t unit, int use) = 0;
  virtual void close(int trainable, int64_t unit, int use) = 0;
};

}  // namespace ingot::nn
