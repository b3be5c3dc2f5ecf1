// Gradient sinks of one process (nn/gradient_sink.h).
#pragma once

#include <vector>

#include "nn/gradient_sink.h"
#include "train/trained.h"

namespace ingot::train {

// Adds the units' contributions in fp32 in the order they come, which is the order of the units for every tensor: the
// bits do not depend on how units are grouped into micro-batches. The look-up's part of a tied embedding has a sum of
// its own, added at the end.
class Fp32Sink : public nn::GradientSink {
 public:
  explicit Fp32Sink(Trained& trained)
      : trained_(trained), touched_(trained.tensors().size(), false), tied_touched_(trained.tensors().size(), false) {}

  // Before the first unit of a step: the next contribution to each tensor is assigned.
  void begin_step();

  // After the last unit: the two uses of a tied embedding become one gradient.
  void end_step(ops::Context& context);

  // Whether every tensor got a contribution since begin_step. One that did not holds an old gradient.
  bool complete() const;

  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  Trained& trained_;
  std::vector<bool>& touched(int use) { return use == 0 ? touched_ : tied_touched_; }
  std::vector<bool> touched_;
  std::vector<bool> tied_touched_;
};

}  // namespace ingot::train
