// Uploads micro-batches to the device, each while the previous one is computed, and downloads their losses.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/packing.h"
#include "nn/pass.h"
#include "spec/context_rows.h"
#include "tensor/staging.h"

namespace ingot::train {

// A micro-batch of T tokens on the device: this rank's, where context-parallel ranks divide its tokens.
struct MicroBatch {
  nn::TokenBatch tokens;
  Tensor targets;  // [T] i32
  Tensor rows;     // [T] i64: dropout row of each token (nn::Training::dropout_rows)
  Tensor losses;   // [T] f32, to be written by the forward pass
  std::vector<int64_t> accumulation_offsets;
};

// The losses of tokens that follow each other in one sequence, added in double and in order.
struct LossSum {
  int64_t place = 0;  // ascending in the order of all tokens of the context-parallel ranks
  double sum = 0;
};

// Per micro-batch: put(), then enqueue the ops on take(), computed() after those that write losses, and done() after
// the last one. Micro-batches have consecutive numbers, from 0. put() blocks only until the device has finished with
// the micro-batch whose memory it reuses, that of `held` micro-batches before. One thread at a time.
class BatchUploader {
 public:
  // Context-parallel ranks, each of which has an equal share of a micro-batch's tokens (spec::context_rows). Gradients
  // and losses are computed apart in `slices` equal parts of an accumulation unit and of a sequence, a multiple of
  // `ranks` where they must not depend on these.
  struct Share {
    int rank = 0, ranks = 1;
    int64_t slices = 1;
    spec::CpCommType type = spec::CpCommType::a2a;
  };
  // Device memory for `held` >= 2 micro-batches of at most `tokens` tokens, divided among `ranks`.
  static size_t bytes(int64_t tokens, int held, int ranks);
  // Allocates that memory from the arena.
  BatchUploader(Device& device, Arena& memory, int64_t tokens, int held, Share share);

  // Starts the upload of sequences of `length` tokens each, in accumulation units of `accumulation_unit` sequences.
  // samples[i] is the number of sequence i in the data set (for dropout); all 0 when `samples` is empty. When the
  // losses have arrived on the host, the loss sum of each part of a sequence of which this rank has tokens is appended
  // to `sums`, which must live until then; null where none are computed. Returns the micro-batch's number.
  // ErrorKind::internal for sequences of another length, and for tokens that the ranks cannot share equally.
  int64_t put(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples, int64_t length,
              int64_t accumulation_unit, std::vector<LossSum>* sums);
  // A micro-batch that was put; the compute stream waits for its upload. Valid until its memory is reused.
  const MicroBatch& take(int64_t number);
  // Starts copying its losses to the host.
  void computed(int64_t number);
  void done(int64_t number);

  // Waits for all losses that belong in `sums`.
  void collect(const std::vector<LossSum>& sums);
  // After an error: drops pending losses without waiting, so that no `sums` is written to any more.
  void discard_pending();

 private:
  // Of a sequence: the tokens in the batch's rows up to `end`, from the end of the part before.
  struct Part {
    int64_t end, place;
  };
  struct Slot {
    Tensor ids, positions, offsets, targets, rows, losses;  // sized for the largest micro-batch
    PinnedBuffer upload, download;
    std::unique_ptr<Event> uploaded, computed, done;
    MicroBatch batch;
    std::vector<Part> parts;
    std::vector<LossSum>* sums = nullptr;  // null once the losses were collected
  };
  void collect(Slot& slot);
  Slot& slot_of(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  Device& device_;
  Share share_;
  std::vector<Slot> slots_;
  int64_t next_ = 0;  // number of the next micro-batch
};

}  // namespace ingot::train
