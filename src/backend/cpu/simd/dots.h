// Products of a few rows of activations with the rows of a weight, at the speed of memory.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
using DotsForm = void(float* y_float, T* y_own, int64_t y_row, const T* x, const T* w, int64_t tokens, int64_t rows,
                      int64_t k, bool accumulate);

using BlockDots = void(float* y_float, Bf16* y_own, int64_t y_row, const Bf16* x, const void* w, int64_t tokens,
                       int64_t rows, int64_t k, bool accumulate);

struct DotKernels {
  // y[t * y_row + r] (+)= sum over i < k of x[t * k + i] w[r * k + i] for t < tokens and r < rows. y is `y_float` where
  // that is given, else `y_own`. Sums in fp32, in an order that depends on k alone.
  ForTypes<DotsForm> dots;
  // The same of a weight in blocks of q8_0 or q4_0, which are decoded to bf16 in registers, for every tile of tokens
  // again; null at levels without products of bf16.
  BlockDots* q8;
  BlockDots* q4;
  int64_t tile_tokens;  // of the largest tile
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const DotKernels dot_kernels;)
