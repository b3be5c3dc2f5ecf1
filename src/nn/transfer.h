// Communication of tensors between ranks, by way of host memory on every device.
#pragma once

#include "comm/group.h"
#include "tensor/tensor.h"

namespace ingot::nn {

// All-reduce: x (any shape), f32, bf16 or f16, becomes the sum of the ranks' x, added in fp32 in the order of ranks and
// rounded once. Does nothing in a group of one.
void sum_over(Device& device, const comm::Group& group, const Tensor& x);

}  // namespace ingot::nn
