// Kernels that combine the experts' rows (ops/moe.h), one token at a time.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
using CombineForm = void(T* y, const T* z, const int32_t* rows, const float* weights, int64_t k, int64_t n,
                         bool accumulate);

struct MoeKernels {
  // y [n] (+)= sum over i < k of weights[i] times row rows[i] of z, whose rows are n apart; weights are 1 if null.
  ForTypes<CombineForm> combine;
  float (*dot_f32)(const float* a, const float* b, int64_t n);
  float (*dot_bf16)(const Bf16* a, const Bf16* b, int64_t n);
  // y [n] = weight x.
  void (*scale_f32)(float* y, const float* x, float weight, int64_t n);
  void (*scale_bf16)(Bf16* y, const Bf16* x, float weight, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const MoeKernels moe_kernels;)
