// Memory that runs out on one thread: the test program's own operator new.
#pragma once

#include <cstdint>

namespace ingot {

constexpr int64_t all_allocations = -1;

// From now on so many allocations of the calling thread by operator new succeed, and those behind them throw
// std::bad_alloc, until this is called again.
void allow_allocations(int64_t count);

}  // namespace ingot
