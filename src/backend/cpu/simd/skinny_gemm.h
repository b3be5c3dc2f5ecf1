// Gemms of a few rows of activations with the rows of a weight, at memory bandwidth.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"
#include "backend/cpu/simd/widened_gemm.h"

namespace ingot::cpu {

// The order in which the rows of a weight are read for one to three tokens, when memory is the limit. Which one is
// fastest depends on the processor's prefetchers; no bit of a result depends on it.
enum class RowOrder {
  streams,      // four at a time, a quarter of the rows apart, so that each quarter is read from begin to end
  interleaved,  // eight neighbours at a time
  prefetched,   // four neighbours at a time, by software prefetches 4 KiB ahead
};

template <class T>
using SkinnyGemm = void(float* y_float, T* y_typed, int64_t y_row, const T* x, const T* w, int64_t tokens, int64_t rows,
                        int64_t k, bool accumulate, RowOrder order);

using BlockSkinnyGemm = void(float* y_float, Bf16* y_typed, int64_t y_row, const Bf16* x, const void* w, int64_t tokens,
                             int64_t rows, int64_t k, bool accumulate, RowOrder order);

struct SkinnyGemmKernels {
  // y[t * y_row + r] (+)= sum over i < k of x[t * k + i] w[r * k + i] for t < tokens and r < rows. y is `y_float` if
  // not null, else `y_typed`. Sums in fp32, in an order that depends on k alone.
  ForTypes<SkinnyGemm> skinny_gemm;
  // The same for a weight in blocks of q8_0 or q4_0, which are decoded to bf16 in registers, again for every tile of
  // tokens; null at levels without bf16 dot products.
  BlockSkinnyGemm* q8;
  BlockSkinnyGemm* q4;
  int64_t tile_tokens;  // tokens of the largest tile
  // skinny_gemm.bf16 for many tokens; null where that is as fast.
  WidenedGemm* widened;
};

}  // namespace ingot::cpu

// The second with bf16 multiplied as fp32 by fused multiply-adds; defined where there are bf16 dot products.
INGOT_EVERY_LEVEL(extern const SkinnyGemmKernels skinny_gemm_kernels, skinny_gemm_fma_kernels;)
