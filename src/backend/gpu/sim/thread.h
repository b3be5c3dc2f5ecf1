// What simulated kernel code calls: the position of the thread that runs, barriers, and what the lanes of a warp do
// together. Threads are fibers that take turns on one thread of the host; see executor.h.
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
  int async_groups = 0;  // that the thread committed
};
// GNU's __thread has no initialisation check on every access.
extern __thread Current current;

inline constexpr size_t max_static_shared = size_t{48} << 10;  // as much as every target has without asking

// A thread waits here for all others of its block, or of its warp. `line` is where in the source: threads that meet at
// different lines have diverged, which is an error.
void block_barrier(int line);
void warp_barrier(int line);

// The value that `lane` of the same warp brought to this call.
uint32_t exchange_bits(uint32_t value, int lane, int line);
template <class T>
T exchange(T value, int lane, int line) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = exchange_bits(bits, lane, line);
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// Over all lanes, in the order that shuffles by lane ^ 1, ^ 2, ^ 4, ... give.
float warp_sum(float value, int line);
float warp_max(float value, int line);

// For the matrix-core instructions: every lane brings the address of its part; the last to come calls `combine` with
// all of them, by lane, which reads them and replaces what is to come back.
using Combine = void (*)(void* const* by_lane);
void together(void* mine, Combine combine, int line);

void* shared_memory(size_t bytes, bool is_static);
template <class T>
T& static_shared() {
  static_assert(sizeof(T) <= max_static_shared, "more static shared memory than every target has");
  return *static_cast<T*>(shared_memory(sizeof(T), true));
}
inline void* dynamic_shared() { return shared_memory(0, false); }

}  // namespace ingot::gpu::sim
