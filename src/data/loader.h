// Prefetching of batches: while step t runs, the loader's own thread assembles the batch of step t + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/order.h"
#include "data/sequence_set.h"

namespace ingot::data {

// The batch of one optimizer step.
struct HostBatch {
  int64_t step = 0;
  std::vector<int64_t> samples;           // [G] sequence indices, as the order returned them
  std::vector<PackedSequence> sequences;  // [G] the sequences of `samples`, in the same order
  int64_t loss_tokens = 0;                // loss tokens in all sequences
};

// Assembles the batch of `step` on the calling thread.
HostBatch make_batch(const SequenceSet& dataset, const Order& order, int64_t step);

// Returns the batches of steps first_step, first_step + 1, ... and prefetches at most two of them. One thread at a time
// may call `next`. The destructor waits at most for the batch that is being assembled.
class Loader {
 public:
  // Both arguments must outlive the loader. Errors: usage when the order is not over the data set's sequences.
  Loader(const SequenceSet& dataset, const Order& order, int64_t first_step);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // Waits for the next batch. An error of the prefetch thread is thrown here, after the batches before it, and at every
  // later call.
  HostBatch next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::data
