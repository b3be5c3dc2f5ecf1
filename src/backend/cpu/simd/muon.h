// The element-wise ops of Muon.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/blockwise.h"
#include "backend/cpu/simd/either_memory.h"
#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct MuonMomentumStep {
  float momentum, one_minus_momentum, gradient_scale;
};

struct MuonKernels {
  void (*momentum)(float* update, EitherMemory momentum, const float* gradient, int64_t n, MuonMomentumStep step);
  // y = x / divisor
  void (*divide)(EitherMemory y, const float* x, float divisor, int64_t n);
  // y = a x + b p
  void (*combine)(EitherMemory y, EitherMemory x, const float* p, float a, float b, int64_t n);
  // master = decay * master - step_size * update; `weight` may be null.
  void (*apply)(EitherMemory master, Bf16* weight, const float* update, float decay, float step_size, int64_t n);
  const BlockwiseKernels* blockwise;  // for 8-bit states
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const MuonKernels muon_kernels;)
