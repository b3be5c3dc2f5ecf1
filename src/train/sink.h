// Gradient sinks of one process (nn/gradient_sink.h): what the contributions of a step's units come to.
#pragma once

#include <vector>

#include "nn/gradient_sink.h"
#include "train/trained.h"

namespace ingot::train {

class StepSink : public nn::GradientSink {
 public:
  explicit StepSink(Trained& trained) : trained_(trained) {}

  // Before the first unit of a step: the next contribution to each tensor is assigned.
  virtual void begin_step();
  bool has(int trainable) const override { return touched_[static_cast<size_t>(trainable)]; }
  // After the last unit.
  virtual void end_step(ops::Context& context) = 0;
  // Whether every tensor got a contribution since begin_step. One that did not holds an old gradient.
  bool complete() const;
  // The step's gradient of a tensor, f32, after end_step; the next call may use the same memory.
  virtual Tensor gradient(ops::Context& context, size_t place) = 0;

 protected:
  Trained& trained_;
  std::vector<bool> touched_;  // by tensor
};

// Adds the units' contributions in fp32 in the order they come, which is the order of the units for every tensor: the
// bits do not depend on how units are grouped into micro-batches. The look-up's part of a tied embedding has a sum of
// its own, added at the end.
class Fp32Sink : public StepSink {
 public:
  using StepSink::StepSink;

  void begin_step() override;
  void end_step(ops::Context& context) override;
  Tensor gradient(ops::Context&, size_t place) override { return trained_.tensors()[place].gradient; }
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  std::vector<bool> tied_touched_;
};

// Adds them in int64 fixed point (ops/fixed_sum.h): the bits depend neither on the order in which units come nor on who
// computes them. A step with a contribution out of its tensor's range has gradients that are NaN.
class FixedSink : public StepSink {
 public:
  // Of steps with at most so many contributions to a tensor. The context outlives the sink.
  FixedSink(Trained& trained, ops::Context& context, int64_t contributions);

  // Bytes of scratch for tensors of at most n elements.
  static size_t bytes(int64_t n);

  void end_step(ops::Context&) override {}
  Tensor gradient(ops::Context& context, size_t place) override;
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  ops::Context& context_;
  int bits_;
};

}  // namespace ingot::train
