// StreamingDataset's order as the order of a run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "data/order.h"
#include "data/streaming_order.h"

namespace ingot::data {

// An epoch's global batches are those of StreamingDataset on the given cluster with a DataLoader with drop_last: an
// incomplete batch at the end is dropped. Another cluster has the same batches except at the end of an epoch: there
// samples are repeated so that ranks have equally many, so an epoch may have one batch more or less.
class StreamingSampler : public Order {
 public:
  // Samples 0 .. num_sequences - 1 are numbered as in `order`; `cluster`: that of the run to reproduce. Errors: usage
  // for a global batch below 1, larger than an epoch, or not divisible among the cluster's ranks; those of
  // StreamingOrder::work.
  StreamingSampler(StreamingOrder order, const StreamingWorld& cluster, int64_t num_sequences, int64_t global_batch);

  int64_t num_sequences() const override { return num_sequences_; }
  // Errors: also those of StreamingOrder::work.
  std::vector<int64_t> step_samples(int64_t step) const override;
  int64_t steps_per_epoch() const { return steps_per_epoch_; }

 private:
  struct Epoch {
    int64_t number = -1;
    WorkerSamples samples;
  };

  StreamingOrder order_;
  WorkerSamples work(int64_t epoch) const;

  StreamingWorld cluster_;
  int64_t num_sequences_, global_batch_;
  int64_t steps_per_epoch_ = 0;
  // The epoch requested last and the one before it: prefetching alternates between two epochs at their border.
  mutable Guarded<std::array<Epoch, 2>> epochs_;
};

}  // namespace ingot::data
