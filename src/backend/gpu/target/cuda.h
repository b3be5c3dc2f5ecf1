// The CUDA target of gpu.h: device code only, compiled by nvcc. Included by gpu.h only.
#pragma once

#define GPU_TARGET cuda
#define GPU_UNROLL _Pragma("unroll")
#define GPU_UNROLL_COPIES _Pragma("unroll 2")  // unrolling further costs registers for addresses
#define GPU_ROLLED _Pragma("unroll 1")
#define GPU_FN __device__ __forceinline__
#define GPU_SHARED(Type, name) __shared__ Type name

#define GPU_KERNEL(NAME, Args, THREADS)                                                       \
  namespace ingot::gpu::cuda {                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ Args a); \
  }
#if __CUDA_ARCH__ >= 900  // an A100 has shared memory for fewer blocks
#define GPU_KERNEL_BLOCKS(NAME, Args, WARPS, BLOCKS)                                                       \
  namespace ingot::gpu::cuda {                                                                             \
  extern "C" __global__ void __launch_bounds__((WARPS) * 32, BLOCKS) NAME(const __grid_constant__ Args a); \
  }
#endif
#define GPU_KERNEL_BODY(NAME, Args) extern "C" __global__ void NAME(const __grid_constant__ Args a)

namespace ingot::gpu::cuda {

inline constexpr int warp_width = 32;

GPU_FN int thread_index() { return static_cast<int>(threadIdx.x); }
GPU_FN int block_index() { return static_cast<int>(blockIdx.x); }
GPU_FN int block_index_y() { return static_cast<int>(blockIdx.y); }
GPU_FN int grid_blocks() { return static_cast<int>(gridDim.x); }

GPU_FN void block_barrier() { __syncthreads(); }
GPU_FN void warp_barrier() { __syncwarp(); }

GPU_FN int assume_warp_uniform(int value) { return value; }

template <class T>
GPU_FN T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  return __shfl_sync(0xffffffffU, value, lane);
}
template <class T>
GPU_FN T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

GPU_FN uint64_t warp_ballot(bool value) { return __ballot_sync(0xffffffffU, value); }
GPU_FN int count_bits(uint64_t bits) { return __popcll(bits); }

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

// The barriers extend the atomic's order to the whole block: order is transitive (PTX ISA, "Memory Consistency Model",
// causality order).
GPU_FN int32_t count_arrival(int32_t* counter, int32_t* shared) {
  block_barrier();
  if (threadIdx.x == 0) {
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(*shared)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
  }
  block_barrier();
  return *shared;
}

GPU_FN float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GPU_FN float square_root(float x) { return __fsqrt_rn(x); }
GPU_FN double square_root(double x) { return __dsqrt_rn(x); }
GPU_FN float round_to_even(float x) { return rintf(x); }
GPU_FN float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

GPU_FN int opaque_value(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
template <class T>
GPU_FN uint32_t pack_rounded(float low, float high) {
  uint32_t bits;
  if constexpr (is_f16<T>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}

GPU_FN uint16_t f16_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
GPU_FN float f16_value(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// cp.async, with one commit group for each commit().
inline constexpr int async_groups = 3;
template <int count>
struct AsyncCopies {
  GPU_FN void begin(int, void* to, const void* from, bool valid) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
        "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
        : "memory");
  }
  GPU_FN void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int pending = 0>
  GPU_FN void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
  }
};

GPU_FN Bytes16 load_streaming(const void* address) {
  Bytes16 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.at[0]), "=r"(value.at[1]), "=r"(value.at[2]), "=r"(value.at[3])
               : "l"(__cvta_generic_to_global(address)));
  return value;
}

// mma.sync m16n8k16, issued twice for 16 columns: PTX ISA, "Matrix fragments for mma.m16n8k16". at[0..3] are columns
// 0-7, at[4..7] columns 8-15.
inline constexpr int mma_k = 16;
struct MmaA {
  uint32_t at[4];
};
struct MmaB {
  uint32_t at[4];
};
struct MmaAccumulator {
  static constexpr int count = 8;
  float at[count];
};
inline constexpr int mma_lane_rows = 2;
inline constexpr int mma_neighbours = 2;
inline constexpr int mma_row_mask = 1;
inline constexpr int mma_row_mask_end = 4;
GPU_FN constexpr int mma_lane_row(int i) { return (i & 2) / 2; }
GPU_FN int mma_row(int i) { return static_cast<int>(threadIdx.x) % 32 / 4 + (i & 2) * 4; }
GPU_FN int mma_column(int i) { return static_cast<int>(threadIdx.x) % 4 * 2 + (i & 1) + (i & 4) * 2; }

GPU_FN void load_matrices(uint32_t (&at)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(at[0]), "=r"(at[1]), "=r"(at[2]), "=r"(at[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
template <class At>
GPU_FN MmaA mma_load_a(At at) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  MmaA a;
  load_matrices(a.at, at(lane % 16, lane / 16 * 8));
  return a;
}
template <class At>
GPU_FN MmaB mma_load_b(At at) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  MmaB b;
  load_matrices(b.at, at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8));
  return b;
}
inline constexpr bool mma_transposes = true;
template <class At>
GPU_FN MmaA mma_load_a_transposed(At at) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  MmaA a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8))))
               : "memory");
  return a;
}
template <class At>
GPU_FN MmaB mma_load_b_transposed(At at) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  MmaB b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.at[0]), "=r"(b.at[1]), "=r"(b.at[2]), "=r"(b.at[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at(lane % 16, lane / 16 * 8))))
               : "memory");
  return b;
}
template <class T>
GPU_FN MmaA mma_operand(const MmaAccumulator (&sums)[1]) {
  const float(&at)[8] = sums[0].at;
  return {{pack_rounded<T>(at[0], at[1]), pack_rounded<T>(at[2], at[3]), pack_rounded<T>(at[4], at[5]),
           pack_rounded<T>(at[6], at[7])}};
}
// A lane l has rows l / 4 and l / 4 + 8. Four lanes share a row; each loads one chunk of 8 of its 32 columns, 4 for
// each of the two tiles.
GPU_FN int mma_chunk_row(int p) { return static_cast<int>(threadIdx.x) % 32 / 4 + 8 * p; }
GPU_FN int mma_chunk(int) { return static_cast<int>(threadIdx.x) % 4; }
inline constexpr int mma_deep = 16;
template <class T>
GPU_FN void mma_half(float* c, const MmaA& a, uint32_t b0, uint32_t b1) {
  if constexpr (is_f16<T>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
  }
}
template <class T>
GPU_FN void mma(MmaAccumulator& c, const MmaA& a, const MmaB& b) {
  mma_half<T>(c.at, a, b.at[0], b.at[1]);
  mma_half<T>(c.at + 4, a, b.at[2], b.at[3]);
}

}  // namespace ingot::gpu::cuda
