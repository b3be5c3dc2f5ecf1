// Tensors between ranks. They go through host memory, whatever the device.
#pragma once

#include "comm/group.h"
#include "tensor/tensor.h"

namespace ingot::nn {

// x [any shape], f32, bf16 or f16, becomes the sum of the ranks' x: added in fp32 in the order of ranks, rounded once.
// Nothing in a group of one.
void sum_over(Device& device, const comm::Group& group, const Tensor& x);

// Of as many bytes on both sides.
void send(Device& device, const comm::Group& group, const Tensor& x, int to);
void receive(Device& device, const comm::Group& group, const Tensor& x, int from);

}  // namespace ingot::nn
