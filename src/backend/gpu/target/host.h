// The host pass of gpu.h: a kernel is a descriptor that can be launched. Included by gpu.h only.
#pragma once

#include "backend/gpu/kernel.h"

#define GPU_FN inline  // for constexpr functions that both kernels and host code call

// Declares kernel `NAME`, which takes an `Args` by value and has `THREADS` threads per block. It is launched with
// gpu::launch.
#define GPU_KERNEL(NAME, Args, THREADS) GPU_KERNEL_OF(NAME, Args, THREADS, 0)
#define GPU_KERNEL_WARPS(NAME, Args, WARPS) GPU_KERNEL_OF(NAME, Args, 0, WARPS)
#define GPU_KERNEL_PAIRED(NAME, Args, WARPS) GPU_KERNEL_WARPS(NAME, Args, WARPS)
#define GPU_KERNEL_BLOCKS(NAME, Args, WARPS, BLOCKS) GPU_KERNEL_WARPS(NAME, Args, WARPS)
#define GPU_KERNEL_OF(NAME, Args, THREADS, WARPS)                                                  \
  namespace ingot::gpu {                                                                           \
  namespace sim32 {                                                                                \
  void NAME(const void* args);                                                                     \
  }                                                                                                \
  namespace sim64 {                                                                                \
  void NAME(const void* args);                                                                     \
  }                                                                                                \
  inline constexpr Kernel<Args> NAME{                                                              \
      {__FILE_NAME__, #NAME, THREADS, sizeof(Args), &sim32::NAME, &sim64::NAME, WARPS}};           \
  [[gnu::section("ingot_kernels"), gnu::used]] static constexpr const KernelInfo* NAME##_in_list = \
      &NAME.info; /* kernels() */                                                                  \
  }
#define GPU_KERNEL_TYPES(NAME, Args, THREADS)                       \
  GPU_KERNEL(NAME##_f32, Args, THREADS)                             \
  GPU_KERNEL(NAME##_bf16, Args, THREADS)                            \
  namespace ingot::gpu {                                            \
  inline constexpr KernelTypes<Args> NAME{NAME##_f32, NAME##_bf16}; \
  }
#define GPU_KERNEL_FORWARD_TYPES(NAME, Args, THREADS)                           \
  GPU_KERNEL(NAME##_f32, Args, THREADS)                                         \
  GPU_KERNEL(NAME##_bf16, Args, THREADS)                                        \
  GPU_KERNEL(NAME##_f16, Args, THREADS)                                         \
  namespace ingot::gpu {                                                        \
  inline constexpr KernelTypes<Args> NAME{NAME##_f32, NAME##_bf16, NAME##_f16}; \
  }
#define GPU_KERNEL_PACKS(NAME, Args, THREADS)                                                              \
  GPU_KERNEL(NAME##_f32, Args, THREADS)                                                                    \
  GPU_KERNEL(NAME##_f32_packed, Args, THREADS)                                                             \
  GPU_KERNEL(NAME##_bf16, Args, THREADS)                                                                   \
  GPU_KERNEL(NAME##_bf16_packed, Args, THREADS)                                                            \
  namespace ingot::gpu {                                                                                   \
  inline constexpr KernelPacks<Args> NAME{NAME##_f32, NAME##_f32_packed, NAME##_bf16, NAME##_bf16_packed}; \
  }
#define GPU_KERNEL_FORWARD_PACKS(NAME, Args, THREADS)                                                \
  GPU_KERNEL(NAME##_f32, Args, THREADS)                                                              \
  GPU_KERNEL(NAME##_f32_packed, Args, THREADS)                                                       \
  GPU_KERNEL(NAME##_bf16, Args, THREADS)                                                             \
  GPU_KERNEL(NAME##_bf16_packed, Args, THREADS)                                                      \
  GPU_KERNEL(NAME##_f16, Args, THREADS)                                                              \
  GPU_KERNEL(NAME##_f16_packed, Args, THREADS)                                                       \
  namespace ingot::gpu {                                                                             \
  inline constexpr KernelPacks<Args> NAME{NAME##_f32,         NAME##_f32_packed, NAME##_bf16,        \
                                          NAME##_bf16_packed, NAME##_f16,        NAME##_f16_packed}; \
  }
