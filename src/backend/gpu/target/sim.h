// The simulated target of gpu.h, with INGOT_GPU_SIM lanes per warp. Included by gpu.h only.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "backend/gpu/sim/thread.h"
#include "base/half.h"

#if INGOT_GPU_SIM == 32
#define GPU_TARGET sim32
#else
#define GPU_TARGET sim64
#endif

// Only for speed; off under the address sanitizer, whose instrumentation prevents the unrolling.
#define GPU_UNROLL
#if defined(__clang__)
#if !__has_feature(address_sanitizer)
#undef GPU_UNROLL
#define GPU_UNROLL _Pragma("unroll")
#endif
#endif
#define GPU_UNROLL_COPIES
#define GPU_ROLLED
#define GPU_FN inline
// A function template, so that the members of Type need no constructors and an oversized Type does not compile.
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

GPU_FN int assume_warp_uniform(int value) { return value; }

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

GPU_FN uint64_t warp_ballot(bool value, int line = __builtin_LINE()) {
  struct Vote {
    bool value;
    uint64_t all;
  } vote{value, 0};
  sim::warp_collective(
      &vote,
      [](void* const* by_lane) {
        uint64_t all = 0;
        for (int l = 0; l < warp_width; ++l) all |= uint64_t{static_cast<const Vote*>(by_lane[l])->value} << l;
        for (int l = 0; l < warp_width; ++l) static_cast<Vote*>(by_lane[l])->all = all;
      },
      line);
  return vote.all;
}
GPU_FN int count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

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

GPU_FN int32_t count_arrival(int32_t* counter, int32_t* shared, int line = __builtin_LINE()) {
  block_barrier(line);
  if (thread_index() == 0) *shared = atomic_add(counter, 1);
  block_barrier(line);
  return *shared;
}

GPU_FN float fma(float a, float b, float c) { return std::fmaf(a, b, c); }
GPU_FN float square_root(float x) { return std::sqrt(x); }
GPU_FN double square_root(double x) { return std::sqrt(x); }
GPU_FN float round_to_even(float x) { return std::nearbyintf(x); }
GPU_FN float exp2_approx(float x) { return std::exp2(x); }

GPU_FN int opaque_value(int value) { return value; }
template <class T>
GPU_FN uint32_t pack_rounded(float low, float high) {
  const auto rounded = [](float value) {
    return static_cast<uint32_t>(is_f16<T> ? float_to_f16(value) : float_to_bf16(value));
  };
  return rounded(low) | rounded(high) << 16;
}

GPU_FN uint16_t f16_bits(float value) { return float_to_f16(value); }
GPU_FN float f16_value(uint16_t bits) { return f16_to_float(bits); }

inline constexpr int async_groups = warp_width == 32 ? 3 : 1;
// The destination is NaN until wait(). It stays NaN if commit() was not called, or if `pending` exceeds the number of
// later commits.
template <int count>
struct AsyncCopies {
  struct Copy {
    void* to;
    const void* from;
  } copies[count];
  int group = 0;

  void begin(int i, void* to, const void* from, bool valid) {
    std::memset(to, 0xff, 16);
    copies[i] = {to, valid ? from : nullptr};
  }
  void commit() { group = ++sim::current.async_groups; }
  template <int pending = 0>
  void wait() const {
    if (group == 0 || sim::current.async_groups - group < pending) return;
    for (const auto& [to, from] : copies) {
      if (from != nullptr) {
        std::memcpy(to, from, 16);
      } else {
        std::memset(to, 0, 16);
      }
    }
  }
};

GPU_FN Bytes16 load_streaming(const void* address) { return *static_cast<const Bytes16*>(address); }

// Matrix tiles with the register layouts of mma.sync (32 lanes; target/cuda.h) and of MFMA (64 lanes; target/amd.h).
inline constexpr int mma_k = 16;
#if INGOT_GPU_SIM == 32
inline constexpr int mma_parts = 8;
struct MmaAccumulator {
  static constexpr int count = 8;
  float at[count];
};
inline constexpr int mma_lane_rows = 2;
inline constexpr int mma_neighbours = 2;
inline constexpr int mma_row_mask = 1;
inline constexpr int mma_row_mask_end = 4;
GPU_FN constexpr int mma_lane_row(int i) { return (i & 2) / 2; }
GPU_FN constexpr int mma_row_of(int lane, int i) { return lane / 4 + (i & 2) * 4; }
GPU_FN constexpr int mma_column_of(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i & 4) * 2; }
// For element i of a lane's operand fragments: row and k in a; column and k in b.
GPU_FN constexpr int mma_a_row(int lane, int i) { return lane / 4 + (i & 2) * 4; }
GPU_FN constexpr int mma_a_k(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i & 4) * 2; }
GPU_FN constexpr int mma_b_column(int lane, int i) { return lane / 4 + (i & 4) * 2; }
GPU_FN constexpr int mma_b_k(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i & 2) * 4; }
#else
inline constexpr int mma_parts = 4;
struct MmaAccumulator {
  static constexpr int count = 4;
  float at[count];
};
inline constexpr int mma_lane_rows = 1;
inline constexpr int mma_neighbours = 4;
inline constexpr int mma_row_mask = 16;
inline constexpr int mma_row_mask_end = 64;
GPU_FN constexpr int mma_lane_row(int) { return 0; }
GPU_FN constexpr int mma_row_of(int lane, int) { return lane % 16; }
GPU_FN constexpr int mma_column_of(int lane, int i) { return lane / 16 * 4 + i; }
GPU_FN constexpr int mma_a_row(int lane, int) { return lane % 16; }
GPU_FN constexpr int mma_a_k(int lane, int i) { return lane / 16 * 4 + i; }
GPU_FN constexpr int mma_b_column(int lane, int) { return lane % 16; }
GPU_FN constexpr int mma_b_k(int lane, int i) { return lane / 16 * 4 + i; }
#endif
GPU_FN int mma_row(int i) { return mma_row_of(thread_index() % warp_width, i); }
GPU_FN int mma_column(int i) { return mma_column_of(thread_index() % warp_width, i); }
struct MmaA {
  uint16_t at[mma_parts];
};
struct MmaB {
  uint16_t at[mma_parts];
};
// Element (row, column) of the matrix that `at` addresses. It calls `at` only for columns for which the device calls it
// too: multiples of `contiguous`, which is 8 with ldmatrix, else 4, and 1 for transposed loads without ldmatrix.
template <int contiguous, class At>
GPU_FN uint16_t mma_element(At at, int row, int column) {
  return at(row, column / contiguous * contiguous)[column % contiguous].bits;
}
inline constexpr int mma_contiguous = warp_width == 32 ? 8 : 4;
inline constexpr int mma_contiguous_transposed = warp_width == 32 ? 8 : 1;
template <class At>
GPU_FN MmaA mma_load_a(At at) {
  const int lane = thread_index() % warp_width;
  MmaA a;
  for (int i = 0; i < mma_parts; ++i) a.at[i] = mma_element<mma_contiguous>(at, mma_a_row(lane, i), mma_a_k(lane, i));
  return a;
}
template <class At>
GPU_FN MmaB mma_load_b(At at) {
  const int lane = thread_index() % warp_width;
  MmaB b;
  for (int i = 0; i < mma_parts; ++i)
    b.at[i] = mma_element<mma_contiguous>(at, mma_b_column(lane, i), mma_b_k(lane, i));
  return b;
}
inline constexpr bool mma_transposes = warp_width == 32;
template <class At>
GPU_FN MmaA mma_load_a_transposed(At at) {
  const int lane = thread_index() % warp_width;
  MmaA a;
  for (int i = 0; i < mma_parts; ++i)
    a.at[i] = mma_element<mma_contiguous_transposed>(at, mma_a_k(lane, i), mma_a_row(lane, i));
  return a;
}
template <class At>
GPU_FN MmaB mma_load_b_transposed(At at) {
  const int lane = thread_index() % warp_width;
  MmaB b;
  for (int i = 0; i < mma_parts; ++i)
    b.at[i] = mma_element<mma_contiguous_transposed>(at, mma_b_k(lane, i), mma_b_column(lane, i));
  return b;
}
// A lane's sums have the positions of its fragment of a: the same rows, and their columns as k.
template <class T>
GPU_FN MmaA mma_operand(const MmaAccumulator (&sums)[1]) {
  MmaA a;
  for (int i = 0; i < mma_parts; ++i) a.at[i] = static_cast<uint16_t>(pack_rounded<T>(sums[0].at[i], 0.0F));
  return a;
}
#if INGOT_GPU_SIM == 32
GPU_FN int mma_chunk_row(int p) { return thread_index() % 32 / 4 + 8 * p; }
GPU_FN int mma_chunk(int) { return thread_index() % 4; }
inline constexpr int mma_deep = 16;
#else
GPU_FN int mma_chunk_row(int) { return thread_index() % 16; }
GPU_FN int mma_chunk(int) { return thread_index() % 64 / 16; }
inline constexpr int mma_deep = 32;
#endif
template <class T>
GPU_FN void mma(MmaAccumulator& c, const MmaA& a, const MmaB& b, int line = __builtin_LINE()) {
  struct Operands {
    MmaAccumulator* c;
    const MmaA* a;
    const MmaB* b;
  } operands{&c, &a, &b};
  sim::warp_collective(
      &operands,
      [](void* const* by_lane) {
        const auto wide = [](uint16_t bits) { return is_f16<T> ? f16_to_float(bits) : bf16_to_float(bits); };
        float as[16][mma_k];
        float bs[mma_k][16];
        for (int lane = 0; lane < warp_width; ++lane) {
          const auto& lane_operands = *static_cast<const Operands*>(by_lane[lane]);
          for (int i = 0; i < mma_parts; ++i) {
            as[mma_a_row(lane, i)][mma_a_k(lane, i)] = wide(lane_operands.a->at[i]);
            bs[mma_b_k(lane, i)][mma_b_column(lane, i)] = wide(lane_operands.b->at[i]);
          }
        }
        float sums[16][16] = {};
        for (int row = 0; row < 16; ++row) {
          for (int k = 0; k < mma_k; ++k) {
            for (int column = 0; column < 16; ++column) sums[row][column] += as[row][k] * bs[k][column];
          }
        }
        for (int lane = 0; lane < warp_width; ++lane) {
          MmaAccumulator& lane_sums = *static_cast<const Operands*>(by_lane[lane])->c;
          for (int i = 0; i < MmaAccumulator::count; ++i)
            lane_sums.at[i] += sums[mma_row_of(lane, i)][mma_column_of(lane, i)];
        }
      },
      line);
}

}  // namespace ingot::gpu::GPU_TARGET
