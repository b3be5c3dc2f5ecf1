// Sums of tensors over tensor-parallel ranks.
#pragma once

#include <memory>

#include "comm/device_communicator.h"
#include "comm/group.h"
#include "nn/pass.h"
#include "tensor/arena.h"

namespace ingot::nn {

// Adds up in the device's streams, in pieces, for which it has memory: each rank receives all ranks' parts of a
// section, adds them and sends the sum to all, so that the order of addition is its own and not that of a library.
class DeviceSum {
 public:
  static size_t bytes();
  // Allocates them from the arena. `ranks` works in the compute stream.
  DeviceSum(std::shared_ptr<comm::DeviceCommunicator> ranks, Arena& memory);

  // x [N], f32, bf16 or f16, becomes the sum of the ranks' x, added in fp32 in the order of ranks and rounded once.
  void sum(ops::Context& context, const Tensor& x);

 private:
  void sum_piece(ops::Context& context, const Tensor& x);

  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  std::byte* parts_;
  comm::DeviceCommunicator::Workspace workspace_;
};

// All-reduce over pass.tp: x (any shape), f32, bf16 or f16, becomes the sum of the ranks' x, added in fp32 in the order
// of ranks and rounded once; by pass.sum, or else by way of host memory, which waits for the device. Does nothing in a
// group of one.
void sum_over_ranks(Pass& pass, const Tensor& x);

}  // namespace ingot::nn
