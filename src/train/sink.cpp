#include "train/sink.h"

#include <algorithm>

namespace ingot::train {

bool Fp32Sink::complete() const {
  return std::all_of(touched_.begin(), touched_.end(), [](bool touched) { return touched; });
}

nn::GradientSink::Slot Fp32Sink::open(int trainable, int64_t) {
  const size_t place = static_cast<size_t>(trainable);
  return {trained_.tensors()[place].gradient, touched_[place]};
}

void Fp32Sink::close(int trainable, int64_t) { touched_[static_cast<size_t>(trainable)] = true; }

}  // namespace ingot::train
