// A blocked gemm on one thread.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// c [m, n] = a [m, k] b [k, n] (+ c): element (i, k) of a is a[i * a_row + k * a_column], element (k, j) of b is b[k *
// b_row + j * b_column].
struct GemmShape {
  int64_t m, n, k;
  int64_t a_row, a_column;
  int64_t b_row, b_column;
  int64_t c_row;
  bool accumulate;
};

// A second gemm of the same m and n, which is added: low [m, k] b [k, n], bf16. low is dense, k is even (pairs); one
// of b's steps is 1. k is 0 if there is none.
struct LowRankTerm {
  const Bf16* low;
  const Bf16* b;
  int64_t k, b_row, b_column;
};

struct GemmKernels {
  // `pack` has gemm_pack_floats floats, 64-byte aligned. Sums over k are in fp32: blocks of gemm_k_block are added in
  // order, each summed from zero in order of k.
  void (*f32_f32)(const GemmShape& shape, float* c, const float* a, const float* b, float* pack);
  void (*bf16_f32)(const GemmShape& shape, float* c, const Bf16* a, const Bf16* b, float* pack);
  void (*f32_bf16)(const GemmShape& shape, Bf16* c, const float* a, const float* b, float* pack);
  void (*bf16_bf16)(const GemmShape& shape, Bf16* c, const Bf16* a, const Bf16* b, float* pack);
  void (*f16_f32)(const GemmShape& shape, float* c, const F16* a, const F16* b, float* pack);
  void (*f16_f16)(const GemmShape& shape, F16* c, const F16* a, const F16* b, float* pack);
};

constexpr int64_t gemm_m_block = 192;  // rows of a packed at a time
constexpr int64_t gemm_n_block = 384;  // columns of b packed at a time
constexpr int64_t gemm_k_block = 32;
constexpr int64_t gemm_max_m = 768;  // rows of a gemm that rounds to 16 bits: its fp32 sums are kept in `pack`
constexpr int64_t gemm_pack_floats = (gemm_m_block + gemm_n_block) * gemm_k_block + gemm_max_m * gemm_n_block;

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const GemmKernels gemm_kernels;)
