// Brings the gradients of data-parallel ranks together, bucket by bucket, while backward goes on, and the weights that
// ranks have updated to all. Transports work on host memory: a device's goes there and back.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/group.h"
#include "tensor/staging.h"
#include "train/trained.h"

namespace ingot::train {

class Exchange {
 public:
  // Nothing happens, and nothing is allocated, in a group of one. Everything referred to outlives it.
  Exchange(Device& device, Trained& trained, const comm::Group& ranks);

  // Whether buckets are exchanged after every micro-batch, and not at the end of a step.
  bool every_micro() const { return trained_.share().stage() == 2; }

  void begin_step();
  // The bucket's memory is what this rank has; all ranks call it for the same buckets in the same order. `empty`: this
  // rank has computed nothing, and the bucket's memory is anything. With every_micro(), the memory of the next one
  // may be used when it returns.
  void begin(size_t bucket, bool empty);
  // After the buckets of a micro-batch, or of a step: of fixed sums, what was the largest on this rank. `empty` as
  // above.
  void take_largest(bool empty);
  // Totals are where own_total says; Trained::largest() is that of all ranks.
  void finish();
  // After an error: what was begun is nobody's any more.
  void forget();
  // Until it is called with false, every rank keeps what it has: for a step that is only tried.
  void keep_apart(bool apart) { apart_ = apart; }

  // x [n] f64 on the device becomes the sum over ranks, in their order.
  void sum(const Tensor& x) const;
  // squares [trained tensors] f64: of own_total's elements, in blocks as ops::sum_squares, by tensor. `blocks` has
  // those of this rank's blocks, one tensor behind the other.
  void join_squares(const Tensor& squares, const Tensor& blocks) const;
  // Every rank's part of the weights becomes that of all.
  void gather_weights() const;
  // Every rank's part of tensor `place`'s master into `whole` [n], on the device, of the same type.
  void gather_master(size_t place, const Tensor& whole) const;

 private:
  // A bucket on its way.
  struct Traffic {
    HostBuffer staging;  // where the host does not see the device's memory
    std::unique_ptr<Event> computed, copied;
    comm::Operation operation;
  };
  bool alone() const { return ranks_.size() == 1 || apart_; }
  std::byte* host_memory(size_t bucket);
  void begin_operation(size_t bucket);
  void keep_under_way();
  void gather(const Tensor& whole, const Tensor& own, const std::vector<Range>& parts) const;

  Device& device_;
  Trained& trained_;
  comm::Group ranks_;
  bool visible_;
  bool apart_ = false;
  std::vector<Traffic> traffic_;              // by bucket
  std::vector<size_t> begun_;                 // buckets
  std::vector<float> largest_;                // [trained tensors]: of fixed sums, over the step so far
  std::optional<size_t> under_way_;           // with every_micro(): the bucket that is not yet kept
  std::vector<std::byte> received_[2];        // this rank's section of two buckets, before it is added to what is kept
  std::vector<std::vector<std::byte>> kept_;  // by bucket, where the host does not see the device's memory
  mutable std::vector<std::byte> gathered_;
};

}  // namespace ingot::train
