// The AMD target of gpu.h: clang's HIP language without ROCm's headers and libraries. Included by gpu.h only.
#pragma once

#define GPU_TARGET amd
#define GPU_FN __attribute__((device)) inline __attribute__((always_inline))
#define GPU_SHARED(Type, name) __attribute__((shared)) Type name

#define GPU_KERNEL(NAME, Args, THREADS)                                                                           \
  namespace ingot::gpu::amd {                                                                                     \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(THREADS, THREADS), visibility("protected"))) void \
  NAME(const Args a);                                                                                             \
  }
#define GPU_KERNEL_BODY(NAME, Args) extern "C" __attribute__((global)) void NAME(const Args a)

namespace ingot::gpu::amd {

#if defined(__GFX9__)
inline constexpr int warp_width = 64;
#else
inline constexpr int warp_width = 32;
#endif

GPU_FN int thread_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
GPU_FN int block_index() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
GPU_FN int block_index_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
GPU_FN int grid_blocks() {
  return static_cast<int>(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x());
}

GPU_FN void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
GPU_FN void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

template <class T>
GPU_FN T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, value)));
}
template <class T>
GPU_FN T shuffle_xor(T value, int mask) {
  return shuffle(value, (thread_index() % warp_width) ^ mask);
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
  extern __attribute__((shared, aligned(16))) unsigned char ingot_dynamic_shared[];
  return reinterpret_cast<T*>(ingot_dynamic_shared);
}

template <class T>
GPU_FN T atomic_add(T* address, T value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

GPU_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GPU_FN float square_root(float x) { return __builtin_sqrtf(x); }
GPU_FN float round_to_even(float x) { return __builtin_rintf(x); }

}  // namespace ingot::gpu::amd
