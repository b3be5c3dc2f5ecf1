// Matrix products of bf16 by the instruction that adds the products of two neighbours of k, on one thread: as a blocked
// product does (gemm.h), but nothing is widened, and the left operand is read in place where it can be.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/gemm.h"

namespace ingot::cpu {

// A second product of the same m and n that is added: low [m, k] b [k, n]. low is dense, k even; one of b's steps is 1.
// None where k is 0.
struct PairTerm {
  const Bf16* low;
  const Bf16* b;
  int64_t k, b_row, b_column;
};

struct PairGemmKernels {
  // c [m, n] = a b + term (+ c), as `shape` says; c is `c_float` where that is given, else `c_bf16`. The sum of an
  // element is one chain of pairs over k, and then over the term's, in fp32, from zero, whatever m and n are; it is
  // rounded, or added to c and rounded, once. Of the two steps of a, and of b, one is 1. `pack`: pair_gemm_pack(k,
  // term's k) words, 64-byte aligned. Null at levels without products of bf16.
  void (*run)(const GemmShape& shape, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, const PairTerm& term,
              uint32_t* pack);
};

constexpr int64_t pair_gemm_rows = 96;       // of a, packed at a time where it is not read in place
constexpr int64_t pair_gemm_panel = 64;      // columns of b that are multiplied at once
constexpr int64_t pair_gemm_near = 1 << 17;  // words of b that are packed at a time, or one panel: half of an L2

// Columns of b, and of the term's, that are packed at a time; `pairs` of both. (static: it is called in files of one
// level, whose copy no other file may get.)
static constexpr int64_t pair_gemm_columns(int64_t pairs) {
  const int64_t fitting = pair_gemm_near / (pairs > 0 ? pairs : 1) / pair_gemm_panel * pair_gemm_panel;
  return fitting > pair_gemm_panel ? fitting : pair_gemm_panel;
}

static constexpr int64_t pair_gemm_pack(int64_t k, int64_t term_k) {
  const int64_t pairs = (k + 1) / 2, all = pairs + term_k / 2;
  return pair_gemm_columns(all) * all + pair_gemm_rows * pairs;
}

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const PairGemmKernels pair_gemm_kernels;)
