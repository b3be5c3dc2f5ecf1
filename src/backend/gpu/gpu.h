// The primitives of GPU kernels (lanes, barriers, shuffles, shared memory, mma tiles) and the macros that declare a
// kernel. Included by *.gpu.cpp. Each of these files is compiled at least four times: as device code for CUDA (nvcc)
// and for AMD (clang), as simulated code for 32-lane and for 64-lane warps (INGOT_GPU_SIM), and with none of these as
// host code, which launches the kernels.
//
// A *.gpu.cpp file has three parts: argument structs and GPU_KERNEL lines, which all passes see; under
// `#if GPU_KERNEL_PASS` the device templates and one GPU_KERNEL_BODY for each kernel; under `#else` the host
// implementation of the op. GPU_KERNEL(NAME, Args, threads) declares a kernel that takes an `Args` by value; its body
// sees it as `a`.
//
// Thread blocks are one-dimensional, with `threads` threads, a multiple of 64 (with GPU_KERNEL_WARPS: with a number of
// warps of whatever width the target has); grids have x and y. Every lane of a warp must take part in warp_* and
// shuffle_*, every thread of a block in block_*. The builds switch off the contraction of a * b + c; kernels call `fma`
// where they want it, so that all targets round alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::gpu {

struct alignas(16) Bytes16 {
  uint32_t at[4];
};

struct Bf16 {  // the upper half of an fp32
  uint16_t bits;
};
struct F16 {  // IEEE 754 binary16
  uint16_t bits;
};
template <class T>
inline constexpr bool is_f16 = false;
template <>
inline constexpr bool is_f16<F16> = true;

}  // namespace ingot::gpu

// clang-format off
// What each pass must provide, in namespace ingot::gpu::GPU_TARGET:
//   GPU_FN                 marks functions that kernels call
//   GPU_UNROLL_COPIES      precedes a loop over AsyncCopies::begin; unrolls it fully where copies wait in registers
//   GPU_ROLLED             precedes a loop that NVIDIA's compiler must not unroll, since that costs registers
//   GPU_UNROLL             precedes a loop that must be unrolled, so that the arrays it indexes stay in registers
//   warp_width             lanes per warp: constexpr int
//   thread_index(), block_index(), block_index_y(), grid_blocks(): int
//   assume_warp_uniform(int)   returns its argument, which must be warp-uniform; on AMD the result is in a scalar
//                              register, so that branches on it are uniform
//   block_barrier(), warp_barrier()
//   shuffle(value, lane), shuffle_xor(value, mask): int32_t, uint32_t or float
//   warp_sum(value), warp_max(value)   over all lanes, the same result in each; in butterfly order: lane ^ 1, ^ 2, ...
//   warp_ballot(bool): uint64_t        bit l is the value of lane l; count_bits(uint64_t): int
//   GPU_SHARED(Type, name)     the kernel's static shared memory: one struct, declared once, at most 48 KiB, not
//                              initialised
//   dynamic_shared<T>()        the launch's dynamic shared memory, 16-byte aligned; a kernel uses either static or
//                              dynamic shared memory
//   atomic_add(address, value) int32_t, int64_t or uint32_t: returns the previous value
//   count_arrival(counter, shared): int32_t   adds 1 to an int32_t in global memory, once for the block, and returns its
//                              previous value to every thread. What the threads of the blocks counted before wrote to
//                              global memory before their call is visible to this block after its call. `shared`: a
//                              word of shared memory, which must not be written until the block's next barrier
//   fma, square_root (float and double), round_to_even: as IEEE 754 defines them
//   exp2_approx(x)            2^x by the device's own instruction: 0 for -infinity, within about 2 ulp; the bits
//                              differ between targets
//   opaque_value(int)          returns its argument; on targets with few registers, keeps the compiler from hoisting
//                              computations with it out of a loop
//   pack_rounded<T>(low, high): uint32_t   both rounded to T, Bf16 or F16, to nearest, ties to even
//   f16_bits(value): uint16_t  rounded to nearest, ties to even, subnormals included; infinity from 65520 on; NaN of NaN
//   f16_value(bits): float     exact, subnormals included
//   AsyncCopies<n>             n asynchronous 16-byte copies of one thread from global to shared memory (cp.async)
//     copies.begin(i, to, from, valid)   called once for each i < n; unless `valid`, writes zeros and does not read
//                              `from`
//     copies.commit()          called after the last begin(); until wait() no thread may access the destinations
//     copies.wait<pending>()   waits; a block_barrier() then makes the data visible to the block. `pending`: the commits
//                              that this thread made after this one, which may still be in flight
//   async_groups               commits worth keeping in flight: 3 where copies need no registers, else 1
//   load_streaming(address)    Bytes16 of aligned global memory that no other thread reads; caches need not keep them
// Matrix tiles. Every operation needs all lanes of a warp. Operands are T, Bf16 or F16 (the loads work for both), sums
// are fp32:
//   mma_k                      columns of an operand tile: 16 or 32
//   MmaA, MmaB, MmaAccumulator        a lane's fragments of the 16 x mma_k operands and of the 16 x 16 sums (`count` of them
//                              in `at`)
//   mma_load_a(at), mma_load_b(at)   at(row, k) points to element (row, k) of a, or (column, k) of b, in shared memory;
//                              8 elements from a multiple of 8 are contiguous and 16-byte aligned
//   mma_load_a_transposed(at), mma_load_b_transposed(at)   the same, but at(k, row) points to element (row, k) of a,
//                              and at(k, column) to element (column, k) of b
//   mma_transposes             true if these two cost the same as the plain loads; otherwise they load single elements
//   mma_operand<T>(sums)       MmaA of mma_k / 16 neighbouring tiles of sums, rounded to T: their columns become k
//   mma<T>(sums, a, b)         sums += a b^T
//   mma_row(i), mma_column(i)  row and column of sums.at[i]
//   mma_lane_rows              number of rows in a lane's fragment of the sums: 1, or 2 (mma.sync)
//   mma_lane_row(i)            which of these rows sums.at[i] is in
//   mma_neighbours             1, 2 or 4: this many sums, from a multiple of it in `at`, are adjacent in a row
//   mma_row_mask, mma_row_mask_end   shuffle_xor with mask, 2 mask, ... below the end reaches all lanes that share the
//                              lane's rows
//   mma_deep                   16 or 32: the columns of an operand that one load from shared memory can fetch
//   mma_chunk_row(p), mma_chunk(p)   for 32 operand columns loaded as chunks of 8: row and chunk (0 to 3) of the lane's
//                              p-th chunk. The target may permute the columns, in the same way for a and b
// Derived from these for every target (mma.h):
//   mma_load_a(tile, stride), mma_load_b(tile, stride)   tile[row * stride + k] is element (row, k) of a, or
//                              (column, k) of b, in shared memory, with rows aligned to 16 bytes
//   MmaLongA, MmaLongB         32 columns of an operand: 32 / mma_k tiles, `at`
//   mma_long_a(chunk), mma_long_b(chunk)   from registers: chunk(row, p), p < 4, returns 16 bytes: columns 8 p to
//                              8 p + 7 of row `row` of a (column of b)
//   MmaDeepA, MmaDeepB         mma_deep columns of an operand: mma_deep / mma_k tiles, `at`
//   mma_load_deep_a(at), mma_load_deep_b(at)   as mma_load_a(at) and mma_load_b(at); where mma_deep is 32, with the
//                              column order of MmaLongA
// clang-format on
#if defined(INGOT_GPU_SIM)
#include "backend/gpu/target/sim.h"
#define GPU_KERNEL_PASS 1
#elif defined(__CUDACC__)
#include "backend/gpu/target/cuda.h"
#define GPU_KERNEL_PASS 1
#elif defined(__AMDGCN__) || defined(__HIP__)
#include "backend/gpu/target/amd.h"
#define GPU_KERNEL_PASS 1
#else
#include "backend/gpu/target/host.h"
#define GPU_KERNEL_PASS 0
#endif

#if GPU_KERNEL_PASS
#define GPU_KERNEL_WARPS(NAME, Args, WARPS) GPU_KERNEL(NAME, Args, (WARPS) * warp_width)
// With registers limited: on AMD so that two blocks of 4 warps run side by side, on NVIDIA so that BLOCKS blocks do.
#if !defined(GPU_KERNEL_PAIRED)
#define GPU_KERNEL_PAIRED(NAME, Args, WARPS) GPU_KERNEL_WARPS(NAME, Args, WARPS)
#endif
#if !defined(GPU_KERNEL_BLOCKS)
#define GPU_KERNEL_BLOCKS(NAME, Args, WARPS, BLOCKS) GPU_KERNEL_WARPS(NAME, Args, WARPS)
#endif
// The same kernel for f32 and bf16, from a function template <class T> or, for GPU_KERNEL_PACKS, <class T, int V>,
// which moves V elements at a time: 1, or as many as fit in 16 bytes. The FORWARD forms add f16.
#define GPU_KERNEL_TYPES(NAME, Args, THREADS) \
  GPU_KERNEL(NAME##_f32, Args, THREADS)       \
  GPU_KERNEL(NAME##_bf16, Args, THREADS)
#define GPU_KERNEL_PACKS(NAME, Args, THREADS)  \
  GPU_KERNEL_TYPES(NAME, Args, THREADS)        \
  GPU_KERNEL(NAME##_f32_packed, Args, THREADS) \
  GPU_KERNEL(NAME##_bf16_packed, Args, THREADS)
#define GPU_KERNEL_FORWARD_TYPES(NAME, Args, THREADS) \
  GPU_KERNEL_TYPES(NAME, Args, THREADS)               \
  GPU_KERNEL(NAME##_f16, Args, THREADS)
#define GPU_KERNEL_FORWARD_PACKS(NAME, Args, THREADS) \
  GPU_KERNEL_PACKS(NAME, Args, THREADS)               \
  GPU_KERNEL(NAME##_f16, Args, THREADS)               \
  GPU_KERNEL(NAME##_f16_packed, Args, THREADS)
#define GPU_KERNEL_BODY_TYPES(NAME, Args, function)         \
  GPU_KERNEL_BODY(NAME##_f32, Args) { function<float>(a); } \
  GPU_KERNEL_BODY(NAME##_bf16, Args) { function<Bf16>(a); }
#define GPU_KERNEL_BODY_PACKS(NAME, Args, function)                   \
  GPU_KERNEL_BODY(NAME##_f32, Args) { function<float, 1>(a); }        \
  GPU_KERNEL_BODY(NAME##_f32_packed, Args) { function<float, 4>(a); } \
  GPU_KERNEL_BODY(NAME##_bf16, Args) { function<Bf16, 1>(a); }        \
  GPU_KERNEL_BODY(NAME##_bf16_packed, Args) { function<Bf16, 8>(a); }
#define GPU_KERNEL_BODY_FORWARD_TYPES(NAME, Args, function) \
  GPU_KERNEL_BODY_TYPES(NAME, Args, function)               \
  GPU_KERNEL_BODY(NAME##_f16, Args) { function<F16>(a); }
#define GPU_KERNEL_BODY_FORWARD_PACKS(NAME, Args, function)  \
  GPU_KERNEL_BODY_PACKS(NAME, Args, function)                \
  GPU_KERNEL_BODY(NAME##_f16, Args) { function<F16, 1>(a); } \
  GPU_KERNEL_BODY(NAME##_f16_packed, Args) { function<F16, 8>(a); }

namespace ingot::gpu::GPU_TARGET {

static_assert(warp_width == 32 || warp_width == 64);

GPU_FN int lane_index() { return thread_index() % warp_width; }
GPU_FN int warp_index() { return assume_warp_uniform(thread_index() / warp_width); }

#if !defined(INGOT_GPU_SIM)  // the simulation synchronises the lanes once here, not at every shuffle
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
#endif

// Sum over the block's `threads` threads, the same in each: first within each warp, then over the warps in order.
// `shared` is shared memory for threads / 32 floats. Two block barriers.
template <int threads>
GPU_FN float block_sum(float value, float* shared) {
  constexpr int warps = threads / warp_width;
  value = warp_sum(value);
  if constexpr (warps == 1) return value;
  if (lane_index() == 0) shared[warp_index()] = value;
  block_barrier();
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += shared[w];
  block_barrier();  // the caller may reuse `shared`
  return sum;
}

template <int threads>
GPU_FN float block_max(float value, float* shared) {
  constexpr int warps = threads / warp_width;
  value = warp_max(value);
  if constexpr (warps == 1) return value;
  if (lane_index() == 0) shared[warp_index()] = value;
  block_barrier();
  float maximum = shared[0];
  for (int w = 1; w < warps; ++w) maximum = shared[w] > maximum ? shared[w] : maximum;
  block_barrier();
  return maximum;
}

// True in the last of `blocks` blocks that call this with the same counter, which is 0 before the first call and again
// after the last one. What every thread of these blocks wrote to global memory before is visible to the last block.
// `shared` as in count_arrival.
GPU_FN bool arrives_last(int32_t* counter, int blocks, int32_t* shared) {
  const bool is_last = count_arrival(counter, shared) == blocks - 1;
  if (is_last && thread_index() == 0) *counter = 0;
  return is_last;
}

}  // namespace ingot::gpu::GPU_TARGET

#include "backend/gpu/gemm/mma.h"
#endif
