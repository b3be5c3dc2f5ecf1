#include "train/sink.h"

#include <algorithm>

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

void StepSink::begin_step() { touched_.assign(trained_.tensors().size(), false); }

bool StepSink::complete() const {
  return std::all_of(touched_.begin(), touched_.end(), [](bool touched) { return touched; });
}

void Fp32Sink::begin_step() {
  StepSink::begin_step();
  tied_touched_.assign(touched_.size(), false);
}

void Fp32Sink::end_step(ops::Context& context) {
  for (size_t place = 0; place < tied_touched_.size(); ++place) {
    const TrainedTensor& t = trained_.tensors()[place];
    if (tied_touched_[place]) ops::add(context, t.gradient, t.gradient, t.tied_gradient);
  }
}

nn::GradientSink::Slot Fp32Sink::open(int trainable, int64_t, int use) {
  const auto place = static_cast<size_t>(trainable);
  const TrainedTensor& t = trained_.tensors()[place];
  return use == 0 ? Slot{t.gradient, touched_[place]} : Slot{t.tied_gradient, tied_touched_[place]};
}

void Fp32Sink::close(int trainable, int64_t, int use) {
  (use == 0 ? touched_ : tied_touched_)[static_cast<size_t>(trainable)] = true;
}

FixedSink::FixedSink(Trained& trained, ops::Context& context, int64_t contributions)
    : StepSink(trained), context_(context), bits_(ops::fixed_sum_bits(contributions)) {}

size_t FixedSink::bytes(int64_t n) { return ops::add_fixed_bytes(n); }

nn::GradientSink::Slot FixedSink::open(int trainable, int64_t, int) {
  return {trained_.tensors()[static_cast<size_t>(trainable)].gradient, false};
}

void FixedSink::close(int trainable, int64_t, int) {
  const auto place = static_cast<size_t>(trainable);
  const TrainedTensor& t = trained_.tensors()[place];
  ops::add_fixed(context_, flat(t.sum), one_of(trained_.largest(), place), flat(t.gradient),
                 one_of(trained_.ranges(), place), bits_, touched_[place]);
  touched_[place] = true;
}

Tensor FixedSink::gradient(ops::Context& context, size_t place) {
  const TrainedTensor& t = trained_.tensors()[place];
  ops::fixed_to_float(context, flat(t.gradient), flat(t.sum), one_of(trained_.largest(), place),
                      one_of(trained_.ranges(), place), bits_);
  return t.gradient;
}

}  // namespace ingot::train
