#include "train/step_accumulator.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/fixed_sum.h"
#include "ops/fixed_sum_bytes.h"

namespace ingot::train {

namespace {

Tensor one_of(const Tensor& tensor, size_t index) {
  const auto at = static_cast<int64_t>(index);
  return tensor.slice(at, at + 1);
}

}  // namespace

void StepAccumulator::begin_step() {
  gradient_sync_.begin_step();
  ended_chunks_.clear();
  reset();
}

void StepAccumulator::begin_micro_batch(bool last) {
  last_ = last;
  open_ = optimizer_state_.buckets().size();
  if (gradient_sync_.every_micro_batch()) reset();
}

void StepAccumulator::begin_layer(int64_t layer) { leave_after(layer, false); }

void StepAccumulator::leave_after(int64_t layer, bool empty) {
  while (open_ > 0 && optimizer_state_.buckets()[open_ - 1].layer > layer) leave(--open_, empty);
}

void StepAccumulator::finish_buckets_after(size_t index, int use) {
  if (in_pipeline()) return;
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  size_t bucket = open_;
  while (bucket > 0 && index < buckets[bucket - 1].first) --bucket;
  if (bucket == 0 || index >= buckets[bucket - 1].last) {
    throw_error(ErrorKind::internal, "a gradient of {} arrived after its bucket was completed",
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
  for (const Bucket& bucket : optimizer_state_.buckets()) require_contributions(bucket);
  gradient_sync_.record_largest(false);
}

void StepAccumulator::require_contributions(const Bucket& bucket) const {
  for (size_t index = bucket.first; index < bucket.last; ++index) {
    if (!touched_[index])
      throw_error(ErrorKind::internal, "{} is trained and received no gradient",
                  optimizer_state_.tensors()[index].name);
  }
}

void StepAccumulator::empty_micro_batch(bool last, std::span<const int64_t> blocks,
                                        FunctionRef<void(int64_t)> come_to) {
  last_ = last;
  open_ = optimizer_state_.buckets().size();
  for (const int64_t layer : blocks) {
    come_to(layer);
    leave_after(layer, true);
  }
  while (open_ > 0) leave(--open_, true);
  if (last_ || gradient_sync_.every_micro_batch()) gradient_sync_.record_largest(true);
}

void StepAccumulator::end_chunk(int chunk, bool empty) {
  ended_chunks_.push_back(chunk);
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  for (size_t b = buckets.size(); b-- > 0;) {
    const std::vector<int>& chunks = buckets[b].chunks;
    const auto has_ended = [&](int each) { return std::ranges::find(ended_chunks_, each) != ended_chunks_.end(); };
    const bool ends = std::ranges::find(chunks, chunk) != chunks.end() && std::ranges::all_of(chunks, has_ended);
    if (ends && !buckets[b].split) end_bucket(b, empty);
  }
}

void StepAccumulator::end_bucket(size_t bucket, bool empty) {
  if (!empty) {
    require_contributions(optimizer_state_.buckets()[bucket]);
    complete(optimizer_state_.buckets()[bucket]);
  }
  gradient_sync_.begin(bucket, empty);
}

// The stages of a split bucket wait for each other, so it comes when all of a rank's computations are done.
void StepAccumulator::end_step(bool empty) {
  if (in_pipeline()) {
    const std::vector<Bucket>& buckets = optimizer_state_.buckets();
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (!buckets[b].split) continue;
      if (!empty) gradient_sync_.sum_uses(*buckets[b].split);
      end_bucket(b, empty);
    }
    gradient_sync_.record_largest(empty);
  }
  gradient_sync_.finish();
}

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
  const bool apart = use == 1 && t.tied_gradient;
  return apart ? Slot{t.tied_gradient, tied_touched_[index]} : Slot{t.gradient, touched_[index]};
}

void Fp32Accumulator::close(int trainable, int64_t, int use) {
  const auto index = static_cast<size_t>(trainable);
  const bool apart = use == 1 && optimizer_state_.tensors()[index].tied_gradient;
  (apart ? tied_touched_ : touched_)[index] = true;
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
  ops::add_fixed(context_, flat(t.sum), one_of(optimizer_state_.largest(), t.number), flat(t.gradient),
                 one_of(optimizer_state_.ranges(), t.number), bits_, touched_[index]);
  touched_[index] = true;
}

Tensor FixedPointAccumulator::gradient(size_t index) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  const Tensor contribution = flat(t.gradient).slice(0, t.shard.count());
  ops::fixed_to_float(context_, contribution, t.shard_gradient, one_of(optimizer_state_.largest(), t.number),
                      one_of(optimizer_state_.ranges(), t.number), bits_);
  return contribution;
}

// In the memory of the sum, which is not needed any more.
Tensor FixedPointAccumulator::kept_gradient(size_t index) {
  const Tensor total = gradient(index);
  const Tensor kept{optimizer_state_.tensors()[index].shard_gradient.data, DType::f32, total.shape, &context_.device};
  ops::scale(context_, kept, total, 1);
  return kept;
}

}  // namespace ingot::train
