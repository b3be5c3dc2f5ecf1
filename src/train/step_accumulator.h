// Gradient accumulators of a step (nn/gradient_accumulator.h): they total the gradient contributions of all
// accumulation units over all ranks.
#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "nn/gradient_accumulator.h"
#include "train/gradient_sync.h"
#include "train/optimizer_state.h"

namespace ingot::train {

class StepAccumulator : public nn::GradientAccumulator {
 public:
  StepAccumulator(OptimizerState& optimizer_state, ops::Context& context, GradientSync& gradient_sync)
      : optimizer_state_(optimizer_state), context_(context), gradient_sync_(gradient_sync) {}

  // Before the first unit of a step: the next contribution to each tensor overwrites it.
  void begin_step();
  // Without a pipeline, called around each micro-batch; `last`: it is this rank's last one in the step. Errors:
  // internal when some trainable tensor got no contribution.
  void begin_micro_batch(bool last);
  void end_micro_batch();
  // Between these, when backward comes to a block, or to what is before the blocks (-1): the buckets of later blocks
  // get no more contributions, and their synchronisation starts.
  void begin_layer(int64_t layer);
  // Called instead of a micro-batch on a rank that has none while others have one; `last` as above. Synchronises the
  // buckets as the others do: `blocks`, in the order of backward, are those before whose gradients `come_to` is called.
  void empty_micro_batch(bool last, std::span<const int64_t> blocks, FunctionRef<void(int64_t layer)> come_to);
  // In a pipeline, whose micro-batches overlap, called in place of these once for each chunk: its buckets get no more
  // contributions. `empty`: this rank had no micro-batch. Errors: as above.
  void end_chunk(int chunk, bool empty);
  // After the last unit: waits for the totals over all ranks. `empty` as in end_chunk().
  void end_step(bool empty);
  void abandon();  // after an error

  bool has(int trainable) const override { return touched_[static_cast<size_t>(trainable)]; }
  // The total of tensor `index`'s own elements (TrainedParameter::shard), f32 and flat, after end_step(). The next call
  // may overwrite it.
  virtual Tensor gradient(size_t index) = 0;
  // The same in memory that stays as it is until the next step's backward. Call it once, instead of gradient().
  virtual Tensor kept_gradient(size_t index) { return gradient(index); }

 protected:
  // Called before a contribution to tensor `index`: without a pipeline, all buckets after its bucket are final, also
  // others of the same block. Errors: internal when its bucket is final.
  void finish_buckets_after(size_t index, int use);
  virtual void reset() { touched_.assign(optimizer_state_.tensors().size(), false); }
  virtual void complete(const Bucket&) {}  // the bucket gets no more contributions

  OptimizerState& optimizer_state_;
  ops::Context& context_;
  std::vector<bool> touched_;  // by tensor: has got a contribution

 private:
  bool in_pipeline() const { return optimizer_state_.share().stages() > 1; }
  void leave(size_t bucket, bool empty);
  void leave_after(int64_t layer, bool empty);
  void end_bucket(size_t bucket, bool empty);
  void require_contributions(const Bucket& bucket) const;

  GradientSync& gradient_sync_;
  size_t open_ = 0;  // buckets [0, open_) may still get contributions from this micro-batch
  bool last_ = false;
  std::vector<int> ended_chunks_;
};

// Adds the contributions in fp32, for each tensor in their order. On CPUs the bits do not depend on how units are
// grouped into micro-batches, except where ranks shard gradients: there each micro-batch is summed separately. On GPUs
// they do: a micro-batch is one contribution (gradient_unit in step_schedule.h). The
// embedding lookup's part of a tied embedding is also summed separately and added at the end. The ranks' sums are added
// in rank order.
class Fp32Accumulator : public StepAccumulator {
 public:
  using StepAccumulator::StepAccumulator;

  Tensor gradient(size_t index) override { return optimizer_state_.tensors()[index].shard_gradient; }
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  void reset() override;
  void complete(const Bucket& bucket) override;

  std::vector<bool> tied_touched_;
};

// Adds contributions in int64 fixed point (ops/fixed_sum.h): the bits depend neither on the order of the units nor on
// which rank computes them. If a contribution exceeds its tensor's range, that tensor's gradient is NaN.
class FixedPointAccumulator : public StepAccumulator {
 public:
  // For steps with at most `contributions` contributions to a tensor, over all ranks.
  FixedPointAccumulator(OptimizerState& optimizer_state, ops::Context& context, GradientSync& gradient_sync,
                        int64_t contributions);

  // Bytes of scratch for tensors of at most n elements.
  static size_t bytes(int64_t n);

  Tensor gradient(size_t index) override;
  Tensor kept_gradient(size_t index) override;
  Slot open(int trainable, int64_t unit, int use) override;
  void close(int trainable, int64_t unit, int use) override;

 private:
  int bits_;
};

}  // namespace ingot::train
