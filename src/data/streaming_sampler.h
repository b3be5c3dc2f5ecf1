// StreamingDataset's order as the order of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "data/order.h"
#include "data/streaming_order.h"

namespace ingot::data {

// An epoch's global batches are those of StreamingDataset behind a DataLoader with drop_last, for any number of ranks
// and workers that share them: an incomplete batch at its end is left out.
class StreamingSampler : public Order {
 public:
  // Of samples 0 .. num_sequences - 1, as `order` numbers them. Errors: usage for a global batch below 1 or larger than
  // an epoch.
  StreamingSampler(StreamingOrder order, int64_t num_sequences, int64_t global_batch);

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
  int64_t num_sequences_, global_batch_;
  int64_t steps_per_epoch_;
  mutable Guarded<Epoch> epoch_;  // the one asked for last
};

}  // namespace ingot::data
