// StreamingDataset's order as the order of a run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "data/order.h"
#include "data/streaming_order.h"

namespace ingot::data {

// An epoch's global batches are those of StreamingDataset on a cluster, behind a DataLoader with drop_last: an
// incomplete batch at its end is left out. Another cluster gives the same batches but at the end of an epoch: there
// ranks get as many samples each, some of which come twice, so an epoch may have a batch more or less.
class StreamingSampler : public Order {
 public:
  // Of samples 0 .. num_sequences - 1, as `order` numbers them; `cluster`: of the run that is followed. Errors: usage
  // for a global batch below 1, larger than an epoch, or that the cluster's ranks cannot share; those of
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
  // The one asked for last, and the one before: what fetches ahead asks across the border of two.
  mutable Guarded<std::array<Epoch, 2>> epochs_;
};

}  // namespace ingot::data
