// Gradient sinks of a step (nn/gradient_sink.h): what the contributions of its units come to, over all ranks.
#pragma once

#include <vector>

#include "nn/gradient_sink.h"
#include "train/exchange.h"
#include "train/trained.h"

namespace ingot::train {

class StepSink : public nn::GradientSink {
 public:
  StepSink(Trained& trained, ops::Context& context, Exchange& exchange)
      : trained_(trained), context_(context), exchange_(exchange) {}

  // Before the first unit of a step: the next contribution to each tensor is assigned.
  void begin_step();
  // Around each micro-batch; `last`: of the step on this rank. A bucket's totals go on their way to the other ranks as
  // backward leaves it.
  void begin_micro(bool last);
  // Errors: internal when some tensor has got no contribution.
  void end_micro();
  // In the place of a micro-batch, for a rank that has none where others have one; `last` as above.
  void empty_micro(bool last);
  // After the last unit: totals are those of all ranks.
  void end_step();
  void forget();  // after an error

  bool has(int trainable) const override { return touched_[static_cast<size_t>(trainable)]; }
  // The total of tensor `place`'s own elements (TrainedTensor::own), f32 and flat, after end_step; the next call may
  // use the same memory.
  virtual Tensor gradient(size_t place) = 0;

 protected:
  // Before a contribution to a tensor, the bucket of which all those behind are finished.
  void come_to(size_t place, int use);
  virtual void reset() { touched_.assign(trained_.tensors().size(), false); }
  virtual void complete(const Bucket&) {}  // nothing more comes to it

  Trained& trained_;
  ops::Context& context_;
  std::vector<bool> touched_;  // by tensor

 private:
  void leave(size_t bucket, bool empty);

  Exchange& exchange_;
  size_t open_ = 0;  // buckets [0, open_) may still get contributions from this micro-batch
  bool last_ = false;
};

// Adds the units' contributions in fp32 in the order they come, which is the order of the units for every tensor: the
// bits do not depend on how units are grouped into micro-batches, unless ranks share gradients: then a micro-batch's
// have a sum of their own. The look-up's part of a tied embedding has one too, added at the end. Ranks' sums are added
// in the order of ranks.
class Fp32Sink : public StepSink {
 public:
  using StepSink::StepSink;

  Tensor gradient(size_t place) override { return trained_.tensors()[place].own_total; }
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  void reset() override;
  void complete(const Bucket& bucket) override;

  std::vector<bool> tied_touched_;
};

// Adds them in int64 fixed point (ops/fixed_sum.h): the bits depend neither on the order in which units come nor on who
// computes them. A step with a contribution out of its tensor's range has gradients that are NaN.
class FixedSink : public StepSink {
 public:
  // Of steps with at most so many contributions to a tensor, on all ranks together.
  FixedSink(Trained& trained, ops::Context& context, Exchange& exchange, int64_t contributions);

  // Bytes of scratch for tensors of at most n elements.
  static size_t bytes(int64_t n);

  Tensor gradient(size_t place) override;
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  int bits_;
};

}  // namespace ingot::train
