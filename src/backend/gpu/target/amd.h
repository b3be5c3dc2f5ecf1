// The AMD target of gpu.h: clang's HIP language without ROCm's headers and libraries. Included by gpu.h only.
#pragma once

#define GPU_TARGET amd
#define GPU_UNROLL _Pragma("unroll")
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

#if defined(__GFX9__)
GPU_FN uint64_t warp_ballot(bool value) { return __builtin_amdgcn_ballot_w64(value); }
#else
GPU_FN uint64_t warp_ballot(bool value) { return __builtin_amdgcn_ballot_w32(value); }
#endif
GPU_FN int count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

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
GPU_FN float power_of_two(float x) { return __builtin_amdgcn_exp2f(x); }

#if defined(__GFX9__)
// v_mfma_f32_16x16x16_bf16 of CDNA 2 and 3, 16x16x32 of CDNA 4: lane l has row or column l % 16 of the operands, and of
// the result column l % 16, rows 4 (l / 16) and on (AMD matrix instruction calculator).
#if defined(__gfx950__)
inline constexpr int mma_k = 32;
using MmaOperand = __attribute__((ext_vector_type(8))) __bf16;
#else
inline constexpr int mma_k = 16;
using MmaOperand = __attribute__((ext_vector_type(4))) short;
#endif
using MmaResult = __attribute__((ext_vector_type(4))) float;
struct MmaSums {
  static constexpr int count = 4;
  MmaResult at;
};
inline constexpr int mma_lane_rows = 4;
GPU_FN int mma_row(int i) { return thread_index() % 64 / 16 * 4 + i; }
GPU_FN int mma_column(int) { return thread_index() % 16; }
template <class T>
GPU_FN MmaOperand mma_load(const T* tile, int stride) {
  const int lane = thread_index() % 64;
  return *reinterpret_cast<const MmaOperand*>(tile + lane % 16 * stride + lane / 16 * (mma_k / 4));
}
#else
// v_wmma_f32_16x16x16_bf16 of RDNA 3: lanes l and l + 16 have row or column l of the operands, whole; of the result
// lane l has column l % 16, rows l / 16, l / 16 + 2, ... (RDNA 3 ISA, section 7.9).
inline constexpr int mma_k = 16;
using MmaOperand = __attribute__((ext_vector_type(16))) short;
using MmaResult = __attribute__((ext_vector_type(8))) float;
struct MmaSums {
  static constexpr int count = 8;
  MmaResult at;
};
inline constexpr int mma_lane_rows = 8;
GPU_FN int mma_row(int i) { return 2 * i + thread_index() % 32 / 16; }
GPU_FN int mma_column(int) { return thread_index() % 16; }
template <class T>
GPU_FN MmaOperand mma_load(const T* tile, int stride) {
  using Half = __attribute__((ext_vector_type(8))) short;
  const auto* row = reinterpret_cast<const Half*>(tile + thread_index() % 16 * stride);
  const Half low = row[0];
  const Half high = row[1];
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif
inline constexpr int mma_row_lanes = 16;
GPU_FN constexpr int mma_lane_row(int i) { return i; }
struct MmaA {
  MmaOperand at;
};
struct MmaB {
  MmaOperand at;
};
template <class T>
GPU_FN MmaA mma_load_a(const T* tile, int stride) {
  return {mma_load(tile, stride)};
}
template <class T>
GPU_FN MmaB mma_load_b(const T* tile, int stride) {
  return {mma_load(tile, stride)};
}
GPU_FN void mma(MmaSums& c, const MmaA& a, const MmaB& b) {
#if defined(__gfx950__)
  c.at = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a.at, b.at, c.at, 0, 0, 0);
#elif defined(__GFX9__)
  c.at = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.at, b.at, c.at, 0, 0, 0);
#else
  c.at = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a.at, b.at, c.at);
#endif
}

}  // namespace ingot::gpu::amd
