// Micro-batches on their way to the device, each while the one before is computed, and their losses on the way back.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "data/packing.h"
#include "nn/pass.h"
#include "tensor/staging.h"

namespace ingot::train {

// T tokens on the device.
struct MicroBatch {
  nn::TokenBatch tokens;
  Tensor targets;  // [T] i32
  Tensor rows;     // [T] i64: dropout rows (nn::Training)
  Tensor losses;   // [T] f32, to be computed
  std::vector<int64_t> unit_offsets;
};

// Two of them at a time: put(), then ops on what it gives, then computed(); and so on. The host waits only for a batch
// two before. One thread at a time.
class Feed {
 public:
  // Device memory for micro-batches of at most this many tokens.
  static size_t bytes(int64_t tokens);
  // Takes it from the arena.
  Feed(Device& device, Arena& memory, int64_t tokens);

  // Starts the upload of sequences of `length` tokens, units of `unit` of them; samples[i] names sequence i, all 0 when
  // absent. Of each sequence the sum of its losses, in double and in the order of tokens, is put behind `sums` when
  // they have come; `sums` lives until then. ErrorKind::internal for sequences of another length.
  void put(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples, int64_t length,
           int64_t unit, std::vector<double>& sums);
  // What was put last; the compute stream goes on when it is there. Valid until the next but one.
  const MicroBatch& take();
  // The ops on it were given: its losses will be right.
  void computed();

  // Waits for all losses that go to `sums`.
  void collect(const std::vector<double>& sums);
  // Waits for nothing, and lets no sums be touched any more: after an error.
  void forget();

 private:
  struct Slot {
    Tensor ids, positions, offsets, targets, rows, losses;  // of the most tokens
    HostBuffer up, down;
    std::unique_ptr<Event> uploaded, computed;
    MicroBatch batch;
    int64_t length = 0;
    std::vector<double>* sums = nullptr;  // while losses are on their way
  };
  void collect(Slot& slot);

  Device& device_;
  std::array<Slot, 2> slots_;
  size_t current_ = 1;
};

}  // namespace ingot::train
