// Tensors between ranks: sums and parts that tensor-parallel ranks have, and what stages of a pipeline pass on.
#pragma once

#include <memory>
#include <span>

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
  // The same for f32, added in a binary tree.
  void add_tree(ops::Context& context, const Tensor& x);
  // The same for f32 and the sum over the groups of `count` neighbours into which the ranks are divided.
  void sum_neighbours(ops::Context& context, const Tensor& x, int count);
  // all [sum of bytes, at most 16 MiB or one row of a matrix] receives every rank's `own`, bytes[r] from rank r, in
  // rank order.
  void gather(const Tensor& all, const Tensor& own, std::span<const size_t> bytes);

 private:
  enum class Order { ranks, tree };
  void sum_pieces(ops::Context& context, const Tensor& x, Order order);
  void sum_piece(ops::Context& context, const Tensor& x, Order order);

  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  std::byte* parts_;
  comm::DeviceCommunicator::Workspace workspace_;
};

// All-reduce over pass.tp: x (any shape), f32, bf16 or f16, becomes the sum of the ranks' x, added in fp32 in the order
// of ranks and rounded once; by its `sum`, or else by way of host memory, which waits for the device. Does nothing in a
// group of one.
void sum_over_ranks(Pass& pass, const Tensor& x);

// The same for x f32 and a number of ranks that is a power of two: x becomes the ranks' sums of a binary tree, first of
// neighbours, then of neighbouring pairs.
void add_tree_over_ranks(Pass& pass, const Tensor& x);

// Without a DeviceSum: x [N] f32 becomes the sum of the x of those of `group` among the `count` neighbours of which
// this rank is one, added as above; by way of host memory.
void sum_neighbours(Device& device, const comm::Group& group, const Tensor& x, int count);

// All-gather over pass.tp: out [R, N] becomes every rank's part [R, columns[r]] beside those of lower ranks; N is the
// sum of columns. Otherwise as above.
void gather_columns_over_ranks(Pass& pass, const Tensor& out, const Tensor& part, std::span<const int64_t> columns);
// Its scratch bytes for out [rows, width] f32.
size_t gather_columns_bytes(int64_t rows, int64_t width);

// A tensor of this rank's device to or from another rank of a group, or from `root` to all of them, by way of host
// memory. They wait for the device. broadcast_tensor does nothing in a group of one.
void send_tensor(Device& device, const comm::Group& group, const Tensor& x, int to);
void receive_tensor(Device& device, const comm::Group& group, const Tensor& x, int from);
void broadcast_tensor(Device& device, const comm::Group& group, const Tensor& x, int root);

}  // namespace ingot::nn
