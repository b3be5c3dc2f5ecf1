// The CUDA target of gpu.h, compiled by nvcc to device code alone. Included by gpu.h only.
#pragma once

#define GPU_TARGET cuda
#define GPU_FN __device__ __forceinline__
#define GPU_SHARED(Type, name) __shared__ Type name

#define GPU_KERNEL(NAME, Args, THREADS)                                                       \
  namespace ingot::gpu::cuda {                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ Args a); \
  }
#define GPU_KERNEL_BODY(NAME, Args) extern "C" __global__ void NAME(const __grid_constant__ Args a)

namespace ingot::gpu::cuda {

inline constexpr int warp_width = 32;

GPU_FN int thread_index() { return static_cast<int>(threadIdx.x); }
GPU_FN int block_index() { return static_cast<int>(blockIdx.x); }
GPU_FN int block_index_y() { return static_cast<int>(blockIdx.y); }
GPU_FN int grid_blocks() { return static_cast<int>(gridDim.x); }

GPU_FN void block_barrier() { __syncthreads(); }
GPU_FN void warp_barrier() { __syncwarp(); }

template <class T>
GPU_FN T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  return __shfl_sync(0xffffffffU, value, lane);
}
template <class T>
GPU_FN T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

GPU_FN float warp_sum(float value) {
  for (int mask = 1; mask < warp_width; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}
GPU_FN float warp_max(float value) {
  for (int mask = 1; mask < warp_width; mask *= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

template <class T>
GPU_FN T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char ingot_dynamic_shared[];
  return reinterpret_cast<T*>(ingot_dynamic_shared);
}

GPU_FN int32_t atomic_add(int32_t* address, int32_t value) { return atomicAdd(address, value); }
GPU_FN uint32_t atomic_add(uint32_t* address, uint32_t value) { return atomicAdd(address, value); }
GPU_FN int64_t atomic_add(int64_t* address, int64_t value) {
  return static_cast<int64_t>(
      atomicAdd(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value)));
}

GPU_FN float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GPU_FN float square_root(float x) { return __fsqrt_rn(x); }
GPU_FN float round_to_even(float x) { return rintf(x); }

}  // namespace ingot::gpu::cuda
