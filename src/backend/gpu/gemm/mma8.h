// Matrix tiles of 8-bit floats: mma on fp8 codes (tensor/fp8.h), for the targets that support it. gpu.h has the tiles
// of bf16 and f16, with the same sums. Kernel passes only.
//   has_mma8                 whether this target supports them; if false, no function here may run
//   mma8_k                     columns of an operand tile, 32
//   Mma8A, Mma8B               a lane's fragments of 16 x mma8_k operands
//   mma8_load_a(tile, stride)  as mma_load_a, of bytes, with rows aligned to 16 bytes
//   mma8_load_b(tile, stride)
//   mma8<a_is_e5m2>(sums, a, b)   sums += a b^T / mma8_factor; a is e4m3 or e5m2, b e4m3
#pragma once

#include "backend/gpu/gpu.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

#if defined(INGOT_GPU_SIM)
// Simulates mma.sync m16n8k32 (32 lanes), and MFMA with gfx942's FNUZ codes (64 lanes).
inline constexpr bool has_mma8 = true;
inline constexpr int mma8_k = 32;
inline constexpr int mma8_parts = 16 * mma8_k / warp_width;
#if INGOT_GPU_SIM == 32
inline constexpr float mma8_factor = 1;
GPU_FN constexpr int mma8_a_row(int lane, int i) { return lane / 4 + (i & 4) * 2; }
GPU_FN constexpr int mma8_a_k(int lane, int i) { return lane % 4 * 4 + (i & 3) + (i & 8) * 2; }
GPU_FN constexpr int mma8_b_column(int lane, int i) { return lane / 4 + (i & 8); }
GPU_FN constexpr int mma8_b_k(int lane, int i) { return lane % 4 * 4 + (i & 3) + (i & 4) * 4; }
#else
inline constexpr float mma8_factor = 4;
GPU_FN constexpr int mma8_a_row(int lane, int) { return lane % 16; }
GPU_FN constexpr int mma8_a_k(int lane, int i) { return lane / 16 * 8 + i; }
GPU_FN constexpr int mma8_b_column(int lane, int) { return lane % 16; }
GPU_FN constexpr int mma8_b_k(int lane, int i) { return lane / 16 * 8 + i; }
#endif
struct Mma8A {
  uint8_t at[mma8_parts];
};
struct Mma8B {
  uint8_t at[mma8_parts];
};
GPU_FN Mma8A mma8_load_a(const uint8_t* tile, int stride) {
  const int lane = thread_index() % warp_width;
  Mma8A a;
  for (int i = 0; i < mma8_parts; ++i) a.at[i] = tile[mma8_a_row(lane, i) * stride + mma8_a_k(lane, i)];
  return a;
}
GPU_FN Mma8B mma8_load_b(const uint8_t* tile, int stride) {
  const int lane = thread_index() % warp_width;
  Mma8B b;
  for (int i = 0; i < mma8_parts; ++i) b.at[i] = tile[mma8_b_column(lane, i) * stride + mma8_b_k(lane, i)];
  return b;
}
// The value of a code as this target's instruction reads it. 0x80 is NaN in FNUZ, otherwise minus zero.
GPU_FN float mma8_value(bool e5m2, uint8_t code) {
  const int mantissa_bits = e5m2 ? 2 : 3;
  const int bias = (e5m2 ? 15 : 7) + (mma8_factor == 4 ? 1 : 0);
  const int magnitude = code & 0x7f;
  if (mma8_factor == 4 && code == 0x80) return __builtin_nanf("");
  if (mma8_factor == 1 && magnitude > (e5m2 ? 0x7b : 0x7e)) return __builtin_nanf("");
  const int exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa | 1 << mantissa_bits;
  const float value = std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (code & 0x80) != 0 ? -value : value;
}
template <bool a_is_e5m2>
GPU_FN void mma8(MmaAccumulator& c, const Mma8A& a, const Mma8B& b, int line = __builtin_LINE()) {
  struct Operands {
    MmaAccumulator* c;
    const Mma8A* a;
    const Mma8B* b;
  } operands{&c, &a, &b};
  sim::warp_collective(
      &operands,
      [](void* const* by_lane) {
        float as[16][mma8_k];
        float bs[mma8_k][16];
        for (int lane = 0; lane < warp_width; ++lane) {
          const auto& lane_operands = *static_cast<const Operands*>(by_lane[lane]);
          for (int i = 0; i < mma8_parts; ++i) {
            as[mma8_a_row(lane, i)][mma8_a_k(lane, i)] = mma8_value(a_is_e5m2, lane_operands.a->at[i]);
            bs[mma8_b_k(lane, i)][mma8_b_column(lane, i)] = mma8_value(false, lane_operands.b->at[i]);
          }
        }
        float sums[16][16] = {};
        for (int row = 0; row < 16; ++row) {
          for (int k = 0; k < mma8_k; ++k) {
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

#elif defined(__CUDACC__)
// mma.sync m16n8k32 of 8-bit floats. A lane holds the same bytes as in the bf16 fragments (PTX ISA, "Matrix fragments
// for mma.m16n8k32").
inline constexpr int mma8_k = 32;
inline constexpr float mma8_factor = 1;
struct Mma8A {
  uint32_t at[4];
};
struct Mma8B {
  uint32_t at[4];
};
GPU_FN Mma8A mma8_load_a(const uint8_t* tile, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Mma8A a;
  load_matrices(a.at, tile + lane % 16 * stride + lane / 16 * 16);
  return a;
}
GPU_FN Mma8B mma8_load_b(const uint8_t* tile, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Mma8B b;
  load_matrices(b.at, tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 16);
  return b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool has_mma8 = true;
#define INGOT_MMA8(TYPE)                                        \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." TYPE    \
               ".e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
               "{%8, %9}, {%0, %1, %2, %3};"                    \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
               : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1))
template <bool a_is_e5m2>
GPU_FN void mma8_half(float* c, const Mma8A& a, uint32_t b0, uint32_t b1) {
  if constexpr (a_is_e5m2) {
    INGOT_MMA8("e5m2");
  } else {
    INGOT_MMA8("e4m3");
  }
}
#undef INGOT_MMA8
#else
inline constexpr bool has_mma8 = false;
template <bool a_is_e5m2>
GPU_FN void mma8_half(float*, const Mma8A&, uint32_t, uint32_t) {}
#endif
template <bool a_is_e5m2>
GPU_FN void mma8(MmaAccumulator& c, const Mma8A& a, const Mma8B& b) {
  mma8_half<a_is_e5m2>(c.at, a, b.at[0], b.at[1]);
  mma8_half<a_is_e5m2>(c.at + 4, a, b.at[2], b.at[3]);
}

#else
// v_mfma_f32_16x16x32_fp8_fp8 and _fp8_bf8 of CDNA 3 and 4: lane l holds row (or column) l % 16, elements 8 (l / 16) to
// 8 (l / 16) + 7 of k. CDNA 3's codes are FNUZ: each means half of its value in the OCP formats.
inline constexpr int mma8_k = 32;
struct Mma8A {
  long at;
};
struct Mma8B {
  long at;
};
GPU_FN long mma8_load(const uint8_t* tile, int stride) {
  const int lane = thread_index() % 64;
  return *reinterpret_cast<const long*>(tile + lane % 16 * stride + lane / 16 * 8);
}
GPU_FN Mma8A mma8_load_a(const uint8_t* tile, int stride) { return {mma8_load(tile, stride)}; }
GPU_FN Mma8B mma8_load_b(const uint8_t* tile, int stride) { return {mma8_load(tile, stride)}; }
#if defined(__gfx942__) || defined(__gfx950__)
inline constexpr bool has_mma8 = true;
#if defined(__gfx942__)
inline constexpr float mma8_factor = 4;
#else
inline constexpr float mma8_factor = 1;
#endif
template <bool a_is_e5m2>
GPU_FN void mma8(MmaAccumulator& c, const Mma8A& a, const Mma8B& b) {
  if constexpr (a_is_e5m2) {
    c.at = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(b.at, a.at, c.at, 0, 0, 0);
  } else {
    c.at = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(b.at, a.at, c.at, 0, 0, 0);
  }
}
#else
inline constexpr bool has_mma8 = false;
inline constexpr float mma8_factor = 1;
template <bool a_is_e5m2>
GPU_FN void mma8(MmaAccumulator&, const Mma8A&, const Mma8B&) {}
#endif

#endif

}  // namespace ingot::gpu::GPU_TARGET
#endif
