#include "data/streaming_sampler.h"

#include "base/error.h"

namespace ingot::data {

StreamingSampler::StreamingSampler(StreamingOrder order, int64_t num_sequences, int64_t global_batch)
    : order_(std::move(order)),
      num_sequences_(num_sequences),
      global_batch_(global_batch),
      steps_per_epoch_(global_batch < 1 ? 0 : order_.epoch_size() / global_batch) {
  if (steps_per_epoch_ < 1) {
    throw_hint(ErrorKind::usage, "lower batch.global", "a global batch of {} of an epoch of {} samples", global_batch,
               order_.epoch_size());
  }
}

std::vector<int64_t> StreamingSampler::step_samples(int64_t step) const {
  if (step < 0) throw_error(ErrorKind::usage, "step {} was asked for; steps count from 0", step);
  const StreamingWorld alone;
  auto epoch = epoch_.lock();
  if (epoch->number != step / steps_per_epoch_) {
    StreamingState state = order_.begin(alone);
    state.epoch = step / steps_per_epoch_;
    epoch->samples = order_.work(alone, global_batch_, state);
    epoch->number = state.epoch;
  }
  std::vector<int64_t> samples(static_cast<size_t>(global_batch_));
  for (int64_t b = 0; b < global_batch_; ++b) {
    samples[static_cast<size_t>(b)] = epoch->samples.at(0, step % steps_per_epoch_, b);
    if (samples[static_cast<size_t>(b)] >= num_sequences_) {
      throw_error(ErrorKind::internal, "the order has more samples than the data");
    }
  }
  return samples;
}

}  // namespace ingot::data
