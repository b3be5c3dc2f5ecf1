// The vocabulary of GPU kernels: lanes, barriers, shuffles, shared memory, and how a kernel is declared. Included by
// *.gpu.cpp, which are compiled four times and more: as device code for CUDA (nvcc) and AMD (clang), as simulated code
// for 32 and for 64 lanes (INGOT_GPU_SIM), and without any of these as host code, which launches the kernels.
//
// A file reads: argument structs and GPU_KERNEL lines (all passes see them), then under `#if GPU_KERNEL_PASS` templates
// and a GPU_KERNEL_BODY for each kernel, then under `#else` the implementations of the op. GPU_KERNEL(NAME, Args,
// threads) declares a kernel that takes an `Args` by value; its body sees it as `a`.
//
// Kernels are one-dimensional: `threads` threads a block, a multiple of 64 (or, by GPU_KERNEL_WARPS, as many warps of
// whatever width), and a grid of blocks in x and y. Every lane
// of a warp takes part in warp_* and shuffle_*, every thread of a block in block_*. Code uses no contraction of
// products and sums (the builds switch it off); `fma` is written where it is meant, so that targets round alike.
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
// What a pass must provide, in namespace ingot::gpu::GPU_TARGET:
//   GPU_FN                      marks functions that kernels call
//   GPU_UNROLL_COPIES           before a loop over AsyncCopies::begin, which is to be unrolled where copies wait in registers
//   GPU_UNROLL                  before a loop that must be unrolled, for what it indexes to stay in registers
//   warp_width                  lanes a warp: constexpr int
//   thread_index(), block_index(), block_index_y(), grid_blocks(): int
//   same_in_warp(int)           the value, which all lanes must have alike: AMD's branches by it are of the warp, not of lanes
//   block_barrier(), warp_barrier()
//   shuffle(value, lane), shuffle_xor(value, mask): int32_t, uint32_t or float
//   warp_sum(value), warp_max(value): of all lanes, the same in each; pairs lane ^ 1, ^ 2, ^ 4, ... in this order
//   warp_ballot(bool): uint64_t   bit l is what lane l says; count_bits(uint64_t): int
//   GPU_SHARED(Type, name)      the kernel's static shared memory: one struct, declared once, at most 48 KiB; undefined at first
//   dynamic_shared<T>()         the launch's dynamic shared memory, 16-byte aligned; a kernel uses one kind or the other
//   atomic_add(address, value)  int32_t, int64_t or uint32_t: returns what was there
//   fma, square_root (float and double), round_to_even: as IEEE 754 has them
//   power_of_two(x)             2^x by the device's own instruction: 0 for -infinity, within about 2 ulp; bits differ by target
//   not_hoisted(int)            the same, but what is computed of it is not kept in registers over a loop where those are few
//   pack_rounded<T>(low, high): uint32_t   both rounded to T, Bf16 or F16, to nearest, ties to even
//   f16_bits(value): uint16_t   rounded to nearest, ties to even, subnormals included; from 65520 on infinity; NaN stays one
//   f16_value(bits): float      exact, subnormals included
//   AsyncCopies<n>              n copies of 16 bytes from global to shared memory that are under way while the thread does
//     copies.begin(i, to, from, wanted)   something else: once for each i < n; zeros where not wanted, then `from` is not read
//     copies.commit()             after the last of them; until end() nobody touches what is copied to
//     copies.end<younger>()       waits; block_barrier() then makes them everyone's. `younger`: commits that this thread made since
//   async_groups                commits worth having under way: 3 where copies need no registers, else 1
//   load_once(address)          Bytes16 of global memory, aligned, that no other thread asks for: caches need not keep it
// Matrix tiles, each operation by all lanes of a warp; operands T, Bf16 or F16 (loads do not ask which), fp32 sums:
//   mma_k                       columns of an operand tile: 16 or 32
//   MmaA, MmaB, MmaSums         a lane's part of 16 x mma_k operands and of the 16 x 16 sums (`count` of them in `at`)
//   mma_load_a(at), mma_load_b(at)   element (row, k) of a, or (column, k) of b, is where at(row, k) points to, in shared
//                               memory: 8 elements from a multiple of 8 lie together, aligned to 16 bytes
//   mma_load_a_transposed(at),  the same where element (row, k) of a is where at(k, row) points to, element (column, k)
//     mma_load_b_transposed(at)   of b where at(k, column) does
//   mma_transposes              true where these two cost what the plain ones do; else they load element by element
//   mma_operand<T>(sums)        MmaA of mma_k / 16 neighbouring tiles of sums, rounded to T: k is their column
//   mma<T>(sums, a, b)          sums += a b^T
//   mma_row(i), mma_column(i)   where sums.at[i] belongs
//   mma_lane_rows               rows that a lane has parts of: 1, or 2 (mma.sync); mma_lane_row(i), which of them sums.at[i] is in
//   mma_neighbours              1, 2 or 4: so many sums, from at[multiple of it] on, are neighbours in a row
//   mma_row_mask, mma_row_mask_end   shuffle_xor with mask, 2 mask, ... below the end meets all lanes that share their rows
//   mma_deep                    16 or 32: columns of an operand that a load from shared memory brings at best
//   mma_piece_row(p), mma_piece(p)   where 32 columns of an operand come as pieces of 8, the lane's p-th: row, and 0 to 3 of it.
//                               Which columns come together is the target's choice, alike for a and b
// Made of these for every target (mma.h):
//   mma_load_a(tile, stride),   element (row, k) of a, or (column, k) of b, is tile[row * stride + k], in shared memory,
//     mma_load_b(tile, stride)    with rows aligned to 16 bytes
//   MmaLongA, MmaLongB          32 columns of an operand: 32 / mma_k tiles, `at`
//   mma_long_a(piece),          from registers: piece(row, p) returns 16 bytes, columns 8 p to 8 p + 7 of row `row` of a
//     mma_long_b(piece)           (column of b), p < 4
//   MmaDeepA, MmaDeepB          mma_deep columns of an operand: mma_deep / mma_k tiles, `at`
//   mma_load_deep_a(at),        as mma_load_a(at) and mma_load_b(at), columns that come together being those of MmaLongA
//     mma_load_deep_b(at)         where mma_deep is 32
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
#if !defined( \
    GPU_KERNEL_PAIRED)  // as GPU_KERNEL_WARPS, with as many registers as let two blocks of 4 warps run side by side
#define GPU_KERNEL_PAIRED(NAME, Args, WARPS) GPU_KERNEL_WARPS(NAME, Args, WARPS)
#endif
// The same kernel for f32 and bf16, from a function template <class T> or, for GPU_KERNEL_PACKS, <class T, int V>: V
// elements are moved at a time, 1 or as many as 16 bytes hold. FORWARD: for f16 too.
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
GPU_FN int warp_index() { return same_in_warp(thread_index() / warp_width); }

#if !defined(INGOT_GPU_SIM)  // the simulation's lanes meet once instead of at every shuffle
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

// Sum over the block's `threads` threads, the same in each: warps first, then their sums in order. `room` is shared
// memory for threads / 32 floats; two barriers.
template <int threads>
GPU_FN float block_sum(float value, float* room) {
  constexpr int warps = threads / warp_width;
  value = warp_sum(value);
  if constexpr (warps == 1) return value;
  if (lane_index() == 0) room[warp_index()] = value;
  block_barrier();
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += room[w];
  block_barrier();  // `room` may be used again
  return sum;
}

template <int threads>
GPU_FN float block_max(float value, float* room) {
  constexpr int warps = threads / warp_width;
  value = warp_max(value);
  if constexpr (warps == 1) return value;
  if (lane_index() == 0) room[warp_index()] = value;
  block_barrier();
  float most = room[0];
  for (int w = 1; w < warps; ++w) most = room[w] > most ? room[w] : most;
  block_barrier();
  return most;
}

}  // namespace ingot::gpu::GPU_TARGET

#include "backend/gpu/mma.h"
#endif
