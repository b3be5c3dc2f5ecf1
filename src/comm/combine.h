// Sums and maxima of host memory, for transports.
#pragma once

#include "comm/channel.h"

namespace ingot::comm {

size_t size_of(Number number);

// into [count] becomes into + from, or the larger of the two, element by element. False when an integer sum did not
// fit.
[[nodiscard]] bool combine(void* into, const void* from, size_t count, Number number, Combine how);

}  // namespace ingot::comm
