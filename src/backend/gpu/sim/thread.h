// The runtime that simulated kernel code calls: the position of the running thread, barriers, and warp-level
// operations. Threads are fibers that take turns on one host thread; see executor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ingot::gpu::sim {

struct Current {
  int thread = 0;
  int block_x = 0;
  int block_y = 0;
  int grid_x = 1;
  int async_groups = 0;  // number of commits by this thread
};
// GNU's __thread does not check for initialisation on every access.
extern __thread Current current;

inline constexpr size_t max_static_shared = size_t{48} << 10;  // what every target offers without opting in

// Waits for all other threads of the block, or of the warp. `line` is the source line of the call: threads that wait at
// different lines have diverged, which is an error.
void block_barrier(int line);
void warp_barrier(int line);

// Returns the value that `lane` of the same warp passed to this call.
uint32_t exchange_bits(uint32_t value, int lane, int line);
template <class T>
T exchange(T value, int lane, int line) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = exchange_bits(bits, lane, line);
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// Reductions over all lanes, in the order of a butterfly of shuffles: lane ^ 1, ^ 2, ^ 4, ...
float warp_sum(float value, int line);
float warp_max(float value, int line);

// For matrix instructions and ballots: every lane passes the address of its operands; the last lane to arrive calls
// `combine` with all addresses, indexed by lane, which reads the operands and writes the results in place.
using Combine = void (*)(void* const* by_lane);
void warp_collective(void* operands, Combine combine, int line);

void* shared_memory(size_t bytes, bool is_static);
template <class T>
T& static_shared() {
  static_assert(sizeof(T) <= max_static_shared, "more static shared memory than every target has");
  return *static_cast<T*>(shared_memory(sizeof(T), true));
}
inline void* dynamic_shared() { return shared_memory(0, false); }

}  // namespace ingot::gpu::sim
