#include "data/streaming_sampler.h"

#include <utility>

#include "base/error.h"

namespace ingot::data {

StreamingSampler::StreamingSampler(StreamingOrder order, const StreamingWorld& cluster, int64_t num_sequences,
                                   int64_t global_batch)
    : order_(std::move(order)), cluster_(cluster), num_sequences_(num_sequences), global_batch_(global_batch) {
  if (global_batch < 1 || cluster.num_ranks() < 1 || global_batch % cluster.num_ranks() != 0) {
    throw_hint(ErrorKind::usage, "make batch.global a multiple of the number of ranks",
               "{} nodes of {} ranks cannot share a global batch of {}", cluster.nodes, cluster.ranks, global_batch);
  }
  if (global_batch <= order_.epoch_size() + cluster.num_ranks()) steps_per_epoch_ = work(0).num_full_batches();
  if (steps_per_epoch_ < 1) {
    throw_hint(ErrorKind::usage, "lower batch.global", "a global batch of {} does not fit an epoch of {} samples",
               global_batch, order_.epoch_size());
  }
}

WorkerSamples StreamingSampler::work(int64_t epoch) const {
  StreamingState state = order_.begin(cluster_);
  state.epoch = epoch;
  return order_.work(cluster_, global_batch_ / cluster_.num_ranks(), state);
}

std::vector<int64_t> StreamingSampler::step_samples(int64_t step) const {
  if (step < 0) throw_error(ErrorKind::usage, "step {} is out of range; steps count from 0", step);
  const int64_t wanted = step / steps_per_epoch_;
  auto epochs = epochs_.lock();
  auto& [last, before] = *epochs;
  if (last.number != wanted) std::swap(last, before);
  if (last.number != wanted) last = {wanted, work(wanted)};
  std::vector<int64_t> samples(static_cast<size_t>(global_batch_));
  for (int64_t i = 0; i < global_batch_; ++i) {
    // In the order of consumption: the first sample of each node's first rank, then of each node's second rank, ...,
    // then the second samples.
    const int64_t turn = i / cluster_.nodes, rank = i % cluster_.nodes * cluster_.ranks + turn % cluster_.ranks;
    const int64_t sample = last.samples.at(rank, step % steps_per_epoch_, turn / cluster_.ranks);
    if (sample >= num_sequences_) throw_error(ErrorKind::internal, "the order has more samples than the data");
    samples[static_cast<size_t>(i)] = sample;
  }
  return samples;
}

}  // namespace ingot::data
