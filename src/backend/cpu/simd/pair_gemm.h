// Matrix products of bf16 by the instruction that adds the products of two neighbours of k, on one thread: as a blocked
// product does (gemm.h), but nothing is widened, and the left operand is read in place where it can be.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/gemm.h"

namespace ingot::cpu {

struct PairGemmKernels {
  // c [m, n] = a b (+ c), as `shape` says; c is `c_float` where that is given, else `c_bf16`. The sum of an element is
  // one chain of pairs over k in fp32, from zero, whatever m and n are; it is rounded, or added to c and rounded, once.
  // Of the two steps of a, and of b, one is 1. `pack`: pair_gemm_pack(k) words, 64-byte aligned. Null at levels without
  // products of bf16.
  void (*run)(const GemmShape& shape, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, uint32_t* pack);
};

constexpr int64_t pair_gemm_rows = 96;       // of a, packed at a time where it is not read in place
constexpr int64_t pair_gemm_panel = 64;      // columns of b that are multiplied at once
constexpr int64_t pair_gemm_near = 1 << 17;  // words of b that are packed at a time, or one panel: half of an L2

constexpr int64_t pair_gemm_pack(int64_t k) {
  const int64_t pairs = (k + 1) / 2;
  const int64_t panel = pair_gemm_panel * pairs;
  return (panel > pair_gemm_near ? panel : pair_gemm_near) + pair_gemm_rows * pairs;
}

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const PairGemmKernels pair_gemm_kernels;)
