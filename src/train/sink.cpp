#include "train/sink.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/fixed_sum.h"
#include "ops/fixed_sum_bytes.h"

namespace ingot::train {

namespace {

Tensor flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.elements()}); }

Tensor one_of(const Tensor& tensor, size_t place) {
  const auto at = static_cast<int64_t>(place);
  return tensor.slice(at, at + 1);
}

}  // namespace

void StepSink::begin_step() {
  exchange_.begin_step();
  reset();
}

void StepSink::begin_micro(bool last) {
  last_ = last;
  open_ = trained_.buckets().size();
  if (exchange_.every_micro()) reset();
}

void StepSink::come_to(size_t place, int use) {
  const std::vector<Bucket>& buckets = trained_.buckets();
  size_t bucket = open_;
  while (bucket > 0 && place < buckets[bucket - 1].first) --bucket;
  if (bucket == 0 || place >= buckets[bucket - 1].last) {
    throw_error(ErrorKind::internal, "a gradient of {} comes after its block's were finished",
                trained_.tensors()[place].name);
  }
  if (buckets[bucket - 1].early && use == 0) return;  // the head's part, before all blocks
  while (open_ > bucket) leave(--open_, false);
}

void StepSink::leave(size_t bucket, bool empty) {
  if (!last_ && !exchange_.every_micro()) return;
  if (!empty) complete(trained_.buckets()[bucket]);
  exchange_.begin(bucket, empty);
}

void StepSink::end_micro() {
  while (open_ > 0) leave(--open_, false);
  if (!last_ && !exchange_.every_micro()) return;
  if (!std::all_of(touched_.begin(), touched_.end(), [](bool touched) { return touched; })) {
    throw_error(ErrorKind::internal, "a trained tensor got no gradient");
  }
  exchange_.take_largest(false);
}

void StepSink::empty_micro(bool last) {
  last_ = last;
  for (open_ = trained_.buckets().size(); open_ > 0;) leave(--open_, true);
  if (last_ || exchange_.every_micro()) exchange_.take_largest(true);
}

void StepSink::end_step() { exchange_.finish(); }

void StepSink::forget() { exchange_.forget(); }

void Fp32Sink::reset() {
  StepSink::reset();
  tied_touched_.assign(touched_.size(), false);
}

void Fp32Sink::complete(const Bucket& bucket) {
  for (size_t place = bucket.first; place < bucket.last; ++place) {
    const TrainedTensor& t = trained_.tensors()[place];
    if (tied_touched_[place]) ops::add(context_, t.gradient, t.gradient, t.tied_gradient);
  }
}

nn::GradientSink::Slot Fp32Sink::open(int trainable, int64_t, int use) {
  const auto place = static_cast<size_t>(trainable);
  come_to(place, use);
  const TrainedTensor& t = trained_.tensors()[place];
  return use == 0 ? Slot{t.gradient, touched_[place]} : Slot{t.tied_gradient, tied_touched_[place]};
}

void Fp32Sink::close(int trainable, int64_t, int use) {
  (use == 0 ? touched_ : tied_touched_)[static_cast<size_t>(trainable)] = true;
}

FixedSink::FixedSink(Trained& trained, ops::Context& context, Exchange& exchange, int64_t contributions)
    : StepSink(trained, context, exchange), bits_(ops::fixed_sum_bits(contributions)) {}

size_t FixedSink::bytes(int64_t n) { return ops::add_fixed_bytes(n); }

nn::GradientSink::Slot FixedSink::open(int trainable, int64_t, int use) {
  come_to(static_cast<size_t>(trainable), use);
  return {trained_.tensors()[static_cast<size_t>(trainable)].gradient, false};
}

void FixedSink::close(int trainable, int64_t, int) {
  const auto place = static_cast<size_t>(trainable);
  const TrainedTensor& t = trained_.tensors()[place];
  ops::add_fixed(context_, flat(t.sum), one_of(trained_.largest(), place), flat(t.gradient),
                 one_of(trained_.ranges(), place), bits_, touched_[place]);
  touched_[place] = true;
}

Tensor FixedSink::gradient(size_t place) {
  const TrainedTensor& t = trained_.tensors()[place];
  const Tensor own = flat(t.gradient).slice(0, t.own.count());
  ops::fixed_to_float(context_, own, t.own_total, one_of(trained_.largest(), place), one_of(trained_.ranges(), place),
                      bits_);
  return own;
}

}  // namespace ingot::train
