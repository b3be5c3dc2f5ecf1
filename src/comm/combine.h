// Element-wise sums and maxima of host memory, for transports.
#pragma once

#include "comm/transport.h"

namespace ingot::comm {

size_t size_of(Number number);

// Sets each of the `count` elements of `into` to into + from, or to the larger of the two. False when an integer sum
// overflowed.
[[nodiscard]] bool combine(void* into, const void* from, size_t count, Number number, ReduceOp how);

}  // namespace ingot::comm
