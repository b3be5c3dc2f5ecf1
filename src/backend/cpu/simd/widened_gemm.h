// The products of skinny_gemm.h for many tokens, by fp32 fused multiply-adds of operands that are widened once.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// As skinny_gemm_fma_kernels.skinny_gemm.bf16, with the same bits. `pack`: widened_gemm_pack floats, 64-byte aligned.
using WidenedGemm = void(float* y_float, Bf16* y_typed, int64_t y_row, const Bf16* x, const Bf16* w, int64_t tokens,
                         int64_t rows, int64_t k, bool accumulate, float* pack);

// Elements of k at a time: a tile's rows of x, widened, stay in L1. Sums of more are kept in between for
// widened_gemm_group tokens and widened_gemm_rows rows at a time.
constexpr int64_t widened_gemm_depth = 768;
constexpr int64_t widened_gemm_tokens = 6, widened_gemm_tile_rows = 4;  // of a tile
constexpr int64_t widened_gemm_group = 96, widened_gemm_rows = 96;
constexpr int64_t widened_gemm_weights = int64_t{1} << 17;  // elements of w that are widened at a time: part of an L2
constexpr int64_t widened_gemm_lanes = 16;
constexpr int64_t widened_gemm_pack = widened_gemm_tokens * widened_gemm_depth + widened_gemm_weights +
                                      widened_gemm_group * widened_gemm_rows * widened_gemm_lanes;

#if defined(INGOT_SIMD_LEVEL)
namespace INGOT_SIMD_LEVEL {
WidenedGemm widened_gemm;  // defined where there are bf16 dot products
}
#endif

}  // namespace ingot::cpu
