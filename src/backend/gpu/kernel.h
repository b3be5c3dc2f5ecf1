// A kernel as the host sees it, and how it is launched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::gpu {

// Identifies the kernel in the code objects, and its entry points in the simulation.
struct KernelInfo {
  const char* file;   // its source: "rms_norm.gpu.cpp"
  const char* name;   // its symbol
  int threads;        // per block; 0: `warps` warps
  size_t args_bytes;  // of its argument struct
  void (*sim32)(const void* args);
  void (*sim64)(const void* args);
  int warps = 0;

  int block_threads(int warp_width) const { return warps > 0 ? warps * warp_width : threads; }
};

template <class Args>
struct Kernel {
  KernelInfo info;
};

// One kernel for each element type; `_packed` is for rows that are moved 16 bytes at a time. f16 exists only for
// kernels of inference; otherwise its name is null.
template <class Args>
struct KernelTypes {
  Kernel<Args> f32, bf16, f16 = {};
};
template <class Args>
struct KernelPacks {
  Kernel<Args> f32, f32_packed, bf16, bf16_packed, f16 = {}, f16_packed = {};
};

// Number of blocks: x is at most 2^31 - 1, y at most 65,535.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
};

}  // namespace ingot::gpu
