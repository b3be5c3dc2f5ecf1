// The simulated target of gpu.h, for INGOT_GPU_SIM lanes a warp. Included by gpu.h only.
#pragma once

#include <cmath>
#include <type_traits>

#include "backend/gpu/sim/thread.h"

#if INGOT_GPU_SIM == 32
#define GPU_TARGET sim32
#else
#define GPU_TARGET sim64
#endif

#define GPU_FN inline
// A template, so that the members of Type need no constructor and an oversized one does not compile.
#define GPU_SHARED(Type, name) Type& name = ::ingot::gpu::sim::static_shared<Type>()

#define GPU_KERNEL(NAME, Args, THREADS) \
  namespace ingot::gpu::GPU_TARGET {    \
  void NAME(const void* args);          \
  }
#define GPU_KERNEL_BODY(NAME, Args)                                             \
  static void NAME##_body(const Args& a);                                       \
  void NAME(const void* args) { NAME##_body(*static_cast<const Args*>(args)); } \
  static void NAME##_body([[maybe_unused]] const Args& a)

namespace ingot::gpu::GPU_TARGET {

inline constexpr int warp_width = INGOT_GPU_SIM;

GPU_FN int thread_index() { return sim::current.thread; }
GPU_FN int block_index() { return sim::current.block_x; }
GPU_FN int block_index_y() { return sim::current.block_y; }
GPU_FN int grid_blocks() { return sim::current.grid_x; }

GPU_FN void block_barrier(int line = __builtin_LINE()) { sim::block_barrier(line); }
GPU_FN void warp_barrier(int line = __builtin_LINE()) { sim::warp_barrier(line); }

template <class T>
GPU_FN T shuffle(T value, int lane, int line = __builtin_LINE()) {
  static_assert(sizeof(T) == 4);
  return sim::exchange(value, lane, line);
}
template <class T>
GPU_FN T shuffle_xor(T value, int mask, int line = __builtin_LINE()) {
  return shuffle(value, (sim::current.thread % warp_width) ^ mask, line);
}

GPU_FN float warp_sum(float value, int line = __builtin_LINE()) { return sim::warp_sum(value, line); }
GPU_FN float warp_max(float value, int line = __builtin_LINE()) { return sim::warp_max(value, line); }

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(sim::dynamic_shared());
}

template <class T>
GPU_FN T atomic_add(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  const T before = *address;
  *address += value;
  return before;
}

GPU_FN float fma(float a, float b, float c) { return std::fmaf(a, b, c); }
GPU_FN float square_root(float x) { return std::sqrt(x); }
GPU_FN float round_to_even(float x) { return std::nearbyintf(x); }

}  // namespace ingot::gpu::GPU_TARGET
