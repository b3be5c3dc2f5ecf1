// The two products of low-rank terms, of tokens that have one adapter.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/dots.h"

namespace ingot::cpu {

// y[t * out + o] += sum over r < rank of B[o * rank + r] low[t * rank + r] for t < tokens and o < out; y is `y_float`
// where that is given, else `y_own`. Sums in fp32 from r = 0 on, rounded once into y. `columns`: rank * lanes
// floats of scratch.
template <class T>
using LoraUp = void(float* y_float, T* y_own, const T* b, const float* low, float* columns, int64_t tokens,
                    int64_t rank, int64_t out);

struct LoraKernels {
  const DotKernels* down;  // low [tokens, rank] = x A, A [rank, in]
  ForTypes<LoraUp> up;
  int64_t lanes;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const LoraKernels lora_kernels;)
