// Batches prepared ahead: while step t runs, a thread of the loader's own puts step t + 1 together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/order.h"
#include "data/sequence_set.h"

namespace ingot::data {

// What one global step trains on.
struct HostBatch {
  int64_t step = 0;
  std::vector<int64_t> samples;       // [G] sequences, as the order gave them
  std::vector<PackedSequence> units;  // [G] the same, in the same order
  int64_t counted = 0;                // targets that count, over all units
};

// Puts the batch of `step` together here and now.
HostBatch make_batch(const SequenceSet& dataset, const Order& order, int64_t step);

// Gives the batches of the steps first_step, first_step + 1, ..., at most two of them ahead of what was asked for.
// `next` may be called from one thread at a time. The destructor does not wait for more than the batch in the making.
class Loader {
 public:
  // Both must outlive the loader. Errors: usage when the order is not over the data set's sequences.
  Loader(const SequenceSet& dataset, const Order& order, int64_t first_step);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // Waits for the next batch. An error of the preparing thread is thrown here, in its place, and at every later call.
  HostBatch next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::data
