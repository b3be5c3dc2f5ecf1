// The AMD target of gpu.h: clang's HIP language without ROCm's headers and libraries. Included by gpu.h only.
#pragma once

#define GPU_TARGET amd
#define GPU_UNROLL _Pragma("unroll")
#define GPU_UNROLL_COPIES GPU_UNROLL
#define GPU_ROLLED
#define GPU_FN __attribute__((device)) inline __attribute__((always_inline))
#define GPU_SHARED(Type, name) __attribute__((shared)) Type name

#define GPU_KERNEL(NAME, Args, THREADS)                                                                           \
  namespace ingot::gpu::amd {                                                                                     \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(THREADS, THREADS), visibility("protected"))) void \
  NAME(const Args a);                                                                                             \
  }
#if defined(__GFX9__)  // limits a lane to half of its 512 registers: two waves per SIMD
#define GPU_KERNEL_PAIRED(NAME, Args, WARPS)                                                                 \
  namespace ingot::gpu::amd {                                                                                \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size((WARPS) * warp_width, (WARPS) * warp_width), \
                            amdgpu_waves_per_eu(2), visibility("protected"))) void                           \
  NAME(const Args a);                                                                                        \
  }
#endif
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

GPU_FN int assume_warp_uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }

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

// Every wave waits for its own stores first: the atomic's release waits only for those of the wave that executes it,
// and a barrier of the block for none (LLVM's AMDGPU usage, "Memory Model").
GPU_FN int32_t count_arrival(int32_t* counter, int32_t* shared) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  block_barrier();
  if (thread_index() == 0) {
    *shared = __hip_atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
  }
  block_barrier();
  return *shared;
}

GPU_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GPU_FN float square_root(float x) { return __builtin_sqrtf(x); }
GPU_FN double square_root(double x) { return __builtin_sqrt(x); }
GPU_FN float round_to_even(float x) { return __builtin_rintf(x); }
GPU_FN float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }

GPU_FN int opaque_value(int value) {
#if !defined(__GFX9__)  // GFX9 has 512 registers
  asm volatile("" : "+v"(value));
#endif
  return value;
}
#if defined(__gfx950__)
GPU_FN uint32_t pack_bf16(float low, float high) {
  using Pair = __attribute__((ext_vector_type(2))) __bf16;
  return __builtin_bit_cast(uint32_t, Pair{static_cast<__bf16>(low), static_cast<__bf16>(high)});
}
#else
// Precondition: no NaN whose upper half is all ones and whose lower half is not 0, because it would not stay NaN.
// Arithmetic produces no such NaN.
GPU_FN uint32_t pack_bf16(float low, float high) {
  const auto rounded = [](float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return bits + 0x7fffU + ((bits >> 16) & 1U);
  };
  return __builtin_amdgcn_perm(rounded(high), rounded(low), 0x07060302);  // packs the upper halves
}
#endif
template <class T>
GPU_FN uint32_t pack_rounded(float low, float high) {
  if constexpr (is_f16<T>) {
    using Pair = __attribute__((ext_vector_type(2))) _Float16;
    return __builtin_bit_cast(uint32_t, Pair{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  } else {
    return pack_bf16(low, high);
  }
}

GPU_FN uint16_t f16_bits(float value) { return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value)); }
GPU_FN float f16_value(uint16_t bits) { return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }

// The loads stay in registers until wait() writes them to shared memory. RDNA has half as many registers, and more
// waves to hide latency with: there begin() writes at once.
inline constexpr int async_groups = 1;
template <int count>
struct AsyncCopies {
  using Value = __attribute__((ext_vector_type(4))) uint32_t;
  using Shared = __attribute__((address_space(3))) Value;
  Value value[count];
  Shared* destination[count];
  GPU_FN void begin(int i, void* to, const void* from, bool valid) {
    destination[i] = (Shared*)to;
    value[i] = Value{};
    if (valid) value[i] = *static_cast<const Value*>(from);
#if !defined(__GFX9__)
    *destination[i] = value[i];
#endif
  }
  // Keeps later instructions after the loads.
  GPU_FN void commit() { __builtin_amdgcn_sched_barrier(0); }
  template <int pending = 0>
  GPU_FN void wait() {
#if defined(__GFX9__)
    GPU_UNROLL
    for (int i = 0; i < count; ++i) *destination[i] = value[i];
#endif
  }
};

GPU_FN Bytes16 load_streaming(const void* address) {
  using Words = __attribute__((ext_vector_type(4))) uint32_t;
  return __builtin_bit_cast(Bytes16, __builtin_nontemporal_load(static_cast<const Words*>(address)));
}

// The instructions get a and b in exchanged order and so compute the transposed product. A lane then holds one row of
// the sums, and its sums lie where its elements of an operand do (see mma_operand).
#if defined(__GFX9__)
// v_mfma_f32_16x16x16_bf16 (and f16) of CDNA 2 and 3, 16x16x32 of CDNA 4. Lane l holds row (or column) l % 16 of the
// operands; of the result it holds column l % 16, rows 4 (l / 16) to 4 (l / 16) + 3 (AMD matrix instruction
// calculator). On CDNA 4 we permute k, in both operands alike: lane l holds k = 4 (l / 16) to 4 (l / 16) + 3 of both
// halves, as it holds those columns of two tiles of sums.
#if defined(__gfx950__)
inline constexpr int mma_k = 32;
using MmaOperand = __attribute__((ext_vector_type(8))) __bf16;
#else
inline constexpr int mma_k = 16;
using MmaOperand = __attribute__((ext_vector_type(4))) short;
#endif
using MmaResult = __attribute__((ext_vector_type(4))) float;
struct MmaAccumulator {
  static constexpr int count = 4;
  MmaResult at;
};
inline constexpr int mma_neighbours = 4;
inline constexpr int mma_row_mask = 16;
inline constexpr int mma_row_mask_end = 64;
GPU_FN int mma_row(int) { return thread_index() % 16; }
GPU_FN int mma_column(int i) { return thread_index() % 64 / 16 * 4 + i; }
using MmaHalf = __attribute__((ext_vector_type(2))) uint32_t;
template <class At>
GPU_FN MmaOperand mma_load(At at) {
  const int row = thread_index() % 16;
  const int k = thread_index() % 64 / 16 * 4;
#if defined(__gfx950__)
  const MmaHalf halves[2] = {*reinterpret_cast<const MmaHalf*>(at(row, k)),
                             *reinterpret_cast<const MmaHalf*>(at(row, k + 16))};
  return __builtin_bit_cast(MmaOperand, halves);
#else
  return __builtin_bit_cast(MmaOperand, *reinterpret_cast<const MmaHalf*>(at(row, k)));
#endif
}
template <class At>
GPU_FN MmaOperand mma_load_transposed(At at) {
  uint16_t parts[mma_k / 4];
  GPU_UNROLL
  for (int i = 0; i < mma_k / 4; ++i) {
    const int k = thread_index() % 64 / 16 * 4 + i % 4 + i / 4 * 16;
    parts[i] = at(k, thread_index() % 16)->bits;
  }
  return __builtin_bit_cast(MmaOperand, parts);
}
#else
// v_wmma_f32_16x16x16_bf16 of RDNA 3: lanes l and l + 16 both hold all of row (or column) l of the operands. Of the
// result, lane l holds column l % 16, rows l / 16, l / 16 + 2, ... (RDNA 3 ISA, section 7.9).
inline constexpr int mma_k = 16;
using MmaOperand = __attribute__((ext_vector_type(16))) short;
using MmaResult = __attribute__((ext_vector_type(8))) float;
struct MmaAccumulator {
  static constexpr int count = 8;
  MmaResult at;
};
inline constexpr int mma_neighbours = 1;
inline constexpr int mma_row_mask = 16;
inline constexpr int mma_row_mask_end = 32;
GPU_FN int mma_row(int) { return thread_index() % 16; }
GPU_FN int mma_column(int i) { return 2 * i + thread_index() % 32 / 16; }
template <class At>
GPU_FN MmaOperand mma_load(At at) {
  using Half = __attribute__((ext_vector_type(8))) short;
  const Half low = *reinterpret_cast<const Half*>(at(thread_index() % 16, 0));
  const Half high = *reinterpret_cast<const Half*>(at(thread_index() % 16, 8));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
template <class At>
GPU_FN MmaOperand mma_load_transposed(At at) {
  MmaOperand operand;
  GPU_UNROLL
  for (int k = 0; k < 16; ++k) operand[k] = static_cast<short>(at(k, thread_index() % 16)->bits);
  return operand;
}
#endif
inline constexpr int mma_lane_rows = 1;
GPU_FN constexpr int mma_lane_row(int) { return 0; }
struct MmaA {
  MmaOperand at;
};
struct MmaB {
  MmaOperand at;
};
template <class At>
GPU_FN MmaA mma_load_a(At at) {
  return {mma_load(at)};
}
template <class At>
GPU_FN MmaB mma_load_b(At at) {
  return {mma_load(at)};
}
inline constexpr bool mma_transposes = false;
template <class At>
GPU_FN MmaA mma_load_a_transposed(At at) {
  return {mma_load_transposed(at)};
}
template <class At>
GPU_FN MmaB mma_load_b_transposed(At at) {
  return {mma_load_transposed(at)};
}
template <class T>
GPU_FN MmaA mma_operand(const MmaAccumulator (&sums)[mma_k / 16]) {
#if defined(__GFX9__)
  uint32_t pairs[mma_k / 8];
  GPU_UNROLL
  for (int i = 0; i < mma_k / 8; ++i) {
    const MmaResult& at = sums[i / 2].at;
    pairs[i] = pack_rounded<T>(at[i % 2 * 2], at[i % 2 * 2 + 1]);
  }
  return {__builtin_bit_cast(MmaOperand, pairs)};
#else
  // Lane l has the even columns of its row, lane l + 16 the odd ones: exchange them between the two.
  uint32_t pairs[8];
  const bool odd = thread_index() % 32 >= 16;
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t own = pack_rounded<T>(sums[0].at[2 * i], sums[0].at[2 * i + 1]);
    const uint32_t other = __builtin_amdgcn_permlanex16(own, own, 0x76543210, 0xfedcba98, false, false);
    const uint32_t even_columns = odd ? other : own;
    const uint32_t odd_columns = odd ? own : other;
    pairs[2 * i] = __builtin_amdgcn_perm(odd_columns, even_columns, 0x05040100);
    pairs[2 * i + 1] = __builtin_amdgcn_perm(odd_columns, even_columns, 0x07060302);
  }
  return {__builtin_bit_cast(MmaOperand, pairs)};
#endif
}
// A lane has one row: a quarter of its 32 columns, or on RDNA 3 all of them.
GPU_FN int mma_chunk_row(int) { return thread_index() % 16; }
#if defined(__GFX9__)
GPU_FN int mma_chunk(int) { return thread_index() % 64 / 16; }
inline constexpr int mma_deep = 32;  // one 16-byte load per lane; on CDNA 2 and 3 it feeds two instructions
#else
GPU_FN int mma_chunk(int p) { return p; }
inline constexpr int mma_deep = 16;
#endif
template <class T>
GPU_FN void mma(MmaAccumulator& c, const MmaA& a, const MmaB& b) {
  if constexpr (is_f16<T>) {
    using Halves = __attribute__((ext_vector_type(sizeof(MmaOperand) / 2))) _Float16;
    const auto left = __builtin_bit_cast(Halves, b.at);
    const auto right = __builtin_bit_cast(Halves, a.at);
#if defined(__gfx950__)
    c.at = __builtin_amdgcn_mfma_f32_16x16x32_f16(left, right, c.at, 0, 0, 0);
#elif defined(__GFX9__)
    c.at = __builtin_amdgcn_mfma_f32_16x16x16f16(left, right, c.at, 0, 0, 0);
#else
    c.at = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(left, right, c.at);
#endif
  } else {
#if defined(__gfx950__)
    c.at = __builtin_amdgcn_mfma_f32_16x16x32_bf16(b.at, a.at, c.at, 0, 0, 0);
#elif defined(__GFX9__)
    c.at = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(b.at, a.at, c.at, 0, 0, 0);
#else
    c.at = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(b.at, a.at, c.at);
#endif
  }
}

}  // namespace ingot::gpu::amd
