#include "train/sink.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace ingot::train {

bool Fp32Sink::complete() const {
  return std::all_of(touched_.begin(), touched_.end(), [](bool touched) { return touched; });
}

void Fp32Sink::begin_step() {
  touched_.assign(touched_.size(), false);
  tied_touched_.assign(tied_touched_.size(), false);
}

void Fp32Sink::end_step(ops::Context& context) {
  for (size_t place = 0; place < tied_touched_.size(); ++place) {
    const TrainedTensor& t = trained_.tensors()[place];
    if (tied_touched_[place]) ops::add(context, t.gradient, t.gradient, t.tied_gradient);
  }
}

nn::GradientSink::Slot Fp32Sink::open(int trainable, int64_t, int use) {
  const size_t place = static_cast<size_t>(trainable);
  const TrainedTensor& t = trained_.tensors()[place];
  return {use == 0 ? t.gradient : t.tied_gradient, touched(use)[place]};
}

void Fp32Sink::close(int trainable, int64_t, int use) { touched(use)[static_cast<size_t>(trainable)] = true; }

}  // namespace ingot::train
