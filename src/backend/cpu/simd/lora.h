// The low-rank term of one token.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// low [rank] = factor * A x; A [rank, in].
template <class T>
using LoraDown = void(float* low, const T* a, const T* x, int64_t rank, int64_t in, float factor);
// y [out] += B low, y_own or else y_float; B [out, rank].
template <class T>
using LoraUp = void(T* y_own, float* y_float, const T* b, const float* low, int64_t rank, int64_t out);

struct LoraKernels {
  ForTypes<LoraDown> down;
  ForTypes<LoraUp> up;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const LoraKernels lora_kernels;)
