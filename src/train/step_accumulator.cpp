#include "train/step_accumulator.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/fixed_sum.h"
#include "ops/fixed_sum_bytes.h"

namespace ingot::train {

namespace {

Tensor flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.elements()}); }

Tensor one_of(const Tensor& tensor, size_t index) {
  const auto at = static_cast<int64_t>(index);
  return tensor.slice(at, at + 1);
}

}  // namespace

void StepAccumulator::begin_step() {
  gradient_sync_.begin_step();
  reset();
}

void StepAccumulator::begin_micro_batch(bool last) {
  last_ = last;
  open_ = optimizer_state_.buckets().size();
  if (gradient_sync_.every_micro_batch()) reset();
}

void StepAccumulator::finish_buckets_after(size_t index, int use) {
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  size_t bucket = open_;
  while (bucket > 0 && index < buckets[bucket - 1].first) --bucket;
  if (bucket == 0 || index >= buckets[bucket - 1].last) {
    throw_error(ErrorKind::internal, "a gradient of {} arrived after its block's gradients were completed",
                optimizer_state_.tensors()[index].name);
  }
  if (buckets[bucket - 1].early && use == 0) return;  // output head's part, which precedes all blocks in backward
  while (open_ > bucket) leave(--open_, false);
}

void StepAccumulator::leave(size_t bucket, bool empty) {
  if (!last_ && !gradient_sync_.every_micro_batch()) return;
  if (!empty) complete(optimizer_state_.buckets()[bucket]);
  gradient_sync_.begin(bucket, empty);
}

void StepAccumulator::end_micro_batch() {
  while (open_ > 0) leave(--open_, false);
  if (!last_ && !gradient_sync_.every_micro_batch()) return;
  if (!std::all_of(touched_.begin(), touched_.end(), [](bool touched) { return touched; })) {
    throw_error(ErrorKind::internal, "a trained tensor received no gradient");
  }
  gradient_sync_.record_largest(false);
}

void StepAccumulator::empty_micro_batch(bool last) {
  last_ = last;
  for (open_ = optimizer_state_.buckets().size(); open_ > 0;) leave(--open_, true);
  if (last_ || gradient_sync_.every_micro_batch()) gradient_sync_.record_largest(true);
}

void StepAccumulator::end_step() { gradient_sync_.finish(); }

void StepAccumulator::abandon() { gradient_sync_.abandon(); }

void Fp32Accumulator::reset() {
  StepAccumulator::reset();
  tied_touched_.assign(touched_.size(), false);
}

void Fp32Accumulator::complete(const Bucket& bucket) {
  for (size_t index = bucket.first; index < bucket.last; ++index) {
    const TrainedParameter& t = optimizer_state_.tensors()[index];
    if (tied_touched_[index]) ops::add(context_, t.gradient, t.gradient, t.tied_gradient);
  }
}

nn::GradientAccumulator::Slot Fp32Accumulator::open(int trainable, int64_t, int use) {
  const auto index = static_cast<size_t>(trainable);
  finish_buckets_after(index, use);
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  return use == 0 ? Slot{t.gradient, touched_[index]} : Slot{t.tied_gradient, tied_touched_[index]};
}

void Fp32Accumulator::close(int trainable, int64_t, int use) {
  (use == 0 ? touched_ : tied_touched_)[static_cast<size_t>(trainable)] = true;
}

FixedPointAccumulator::FixedPointAccumulator(OptimizerState& optimizer_state, ops::Context& context,
                                             GradientSync& gradient_sync, int64_t contributions)
    : StepAccumulator(optimizer_state, context, gradient_sync), bits_(ops::fixed_sum_bits(contributions)) {}

size_t FixedPointAccumulator::bytes(int64_t n) { return ops::add_fixed_bytes(n); }

nn::GradientAccumulator::Slot FixedPointAccumulator::open(int trainable, int64_t, int use) {
  finish_buckets_after(static_cast<size_t>(trainable), use);
  return {optimizer_state_.tensors()[static_cast<size_t>(trainable)].gradient, false};
}

void FixedPointAccumulator::close(int trainable, int64_t, int) {
  const auto index = static_cast<size_t>(trainable);
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  ops::add_fixed(context_, flat(t.sum), one_of(optimizer_state_.largest(), index), flat(t.gradient),
                 one_of(optimizer_state_.ranges(), index), bits_, touched_[index]);
  touched_[index] = true;
}

Tensor FixedPointAccumulator::gradient(size_t index) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  const Tensor contribution = flat(t.gradient).slice(0, t.shard.count());
  ops::fixed_to_float(context_, contribution, t.shard_gradient, one_of(optimizer_state_.largest(), index),
                      one_of(optimizer_state_.ranges(), index), bits_);
  return contribution;
}

}  // namespace ingot::train
