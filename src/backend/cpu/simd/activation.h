// Kernels of activation on n elements, indexed by activation (the values of ops::Activation). y may be x; dx may be dy
// or x.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
using ActivationForm = void(T* y, const T* x, int64_t n);

struct ActivationKernels {
  ForTypes<ActivationForm> forward[3];
  void (*backward_f32[3])(float* dx, const float* dy, const float* x, int64_t n);
  void (*backward_bf16[3])(Bf16* dx, const Bf16* dy, const Bf16* x, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const ActivationKernels activation_kernels;)
