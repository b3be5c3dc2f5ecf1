// bf16 gemms on one thread by fp32 fused multiply-adds, for processors where these have twice the rate of bf16 dot
// products (isa.h). Blocks of both operands are widened once to fp32, and a block of the right one is read from L1.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/gemm.h"

namespace ingot::cpu {

struct FmaGemmKernels {
  // c [m, n] = a b + term (+ c), as described by `shape`. c is `c_float` if not null, else `c_bf16`. The sum of an
  // element is one chain over k, and then over the term's k, in fp32, from zero, whatever m and n are; it is rounded,
  // or added to c and rounded, once. One of the two steps of a is 1, and one of b's; a_column is 1 if there is a term.
  // `pack`: fma_gemm_pack floats, 64-byte aligned. Null at levels without AVX-512.
  void (*run)(const GemmShape& shape, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b,
              const LowRankTerm& term, float* pack);
};

constexpr int64_t fma_gemm_panel = 64;          // columns of b that are multiplied at a time
constexpr int64_t fma_gemm_depth = 144;         // elements of k at a time: a panel of b takes most of an L1
constexpr int64_t fma_gemm_rows = 192;          // rows of a that are widened at a time
constexpr int64_t fma_gemm_columns = 512;       // columns of b that are widened at a time
constexpr int64_t fma_gemm_partial_rows = 512;  // rows of c whose sums are kept between two parts of k
constexpr int64_t fma_gemm_max_tile_rows = 24;
constexpr int64_t fma_gemm_pack = (fma_gemm_rows + fma_gemm_columns) * fma_gemm_depth +
                                  (fma_gemm_partial_rows + fma_gemm_max_tile_rows) * fma_gemm_columns;

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const FmaGemmKernels fma_gemm_kernels;)
