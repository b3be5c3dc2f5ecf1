// Uploads micro-batches to the device, each while the previous one is computed, and downloads their losses.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "data/packing.h"
#include "nn/pass.h"
#include "tensor/staging.h"

namespace ingot::train {

// A micro-batch of T tokens on the device.
struct MicroBatch {
  nn::TokenBatch tokens;
  Tensor targets;  // [T] i32
  Tensor rows;     // [T] i64: dropout row of each token (nn::Training::dropout_rows)
  Tensor losses;   // [T] f32, to be written by the forward pass
  std::vector<int64_t> accumulation_offsets;
};

// Double-buffered. Per micro-batch: put(), then enqueue the ops on take(), then computed(). put() blocks only until the
// device has finished with the micro-batch before the previous one. One thread at a time.
class BatchUploader {
 public:
  // Device memory for micro-batches of at most `tokens` tokens.
  static size_t bytes(int64_t tokens);
  // Allocates that memory from the arena.
  BatchUploader(Device& device, Arena& memory, int64_t tokens);

  // Starts the upload of sequences of `length` tokens each, in accumulation units of `accumulation_unit` sequences.
  // samples[i] is the number of sequence i in the data set (for dropout); all 0 when `samples` is empty. When the
  // losses have arrived on the host, the loss sum of each sequence, in double and in token order, is appended to
  // `sums`, which must live until then. ErrorKind::internal for sequences of another length.
  void put(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples, int64_t length,
           int64_t accumulation_unit, std::vector<double>& sums);
  // The last micro-batch that was put; the compute stream waits for its upload. Valid until put() has been called twice
  // more.
  const MicroBatch& take();
  // To be called after the ops on it were enqueued: starts copying its losses to the host.
  void computed();

  // Waits for all losses that belong in `sums`.
  void collect(const std::vector<double>& sums);
  // After an error: drops pending losses without waiting, so that no `sums` is written to any more.
  void discard_pending();

 private:
  struct Slot {
    Tensor ids, positions, offsets, targets, rows, losses;  // sized for the largest micro-batch
    PinnedBuffer upload, download;
    std::unique_ptr<Event> uploaded, computed;
    MicroBatch batch;
    int64_t length = 0;
    std::vector<double>* sums = nullptr;  // null once the losses were collected
  };
  void collect(Slot& slot);

  Device& device_;
  std::array<Slot, 2> slots_;
  size_t current_ = 1;
};

}  // namespace ingot::train
