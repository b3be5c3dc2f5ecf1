// Simulates a lack of memory on one thread by the test program's own operator new.
#pragma once

#include <cstdint>

namespace ingot {

constexpr int64_t all_allocations = -1;

// The next `count` allocations of the calling thread by operator new succeed and later ones throw std::bad_alloc, until
// this is called again.
void allow_allocations(int64_t count);

}  // namespace ingot
