// The two gemms of a low-rank term, for tokens that share an adapter.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/skinny_gemm.h"

namespace ingot::cpu {

// y[t * out + o] += sum over r < rank of B[o * rank + r] low[t * rank + r] for t < tokens and o < out; y is `y_float`
// if not null, else `y_own`. Sums in fp32 in order of r, rounded once into y. `columns`: scratch of rank * lanes
// floats.
template <class T>
using LoraUp = void(float* y_float, T* y_own, const T* b, const float* low, float* columns, int64_t tokens,
                    int64_t rank, int64_t out);

struct LoraKernels {
  const SkinnyGemmKernels* down;  // low [tokens, rank] = x A^T, A [rank, in]
  ForTypes<LoraUp> up;
  int64_t lanes;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const LoraKernels lora_kernels;)
