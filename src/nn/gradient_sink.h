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

  // Where the contribution of unit `unit` (of the micro-batch) to trained parameter `trainable` goes. One slot is open
  // at a time. A parameter used in several places (a tied embedding) is opened once a place.
  virtual Slot open(int trainable, int64_t unit) = 0;
  virtual void close(int trainable, int64_t unit) = 0;
};

}  // namespace ingot::nn
