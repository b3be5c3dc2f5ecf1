// Kernels of glu on n elements, indexed by activation (the values of ops::Activation). Outputs may alias inputs as in
// ops/glu.h.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
using GluForm = void(T* y, const T* gate, const T* up, int64_t n);

struct GluKernels {
  ForTypes<GluForm> forward[3];
  void (*backward_f32[3])(float* dgate, float* dup, const float* dy, const float* gate, const float* up, int64_t n);
  void (*backward_bf16[3])(Bf16* dgate, Bf16* dup, const Bf16* dy, const Bf16* gate, const Bf16* up, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const GluKernels glu_kernels;)
