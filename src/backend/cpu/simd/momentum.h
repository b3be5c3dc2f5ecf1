// The updates of SGD with momentum and of Lion.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/blockwise.h"
#include "backend/cpu/simd/either_memory.h"
#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct SgdStep {
  float momentum, weight_decay, lr, gradient_scale;
};

struct LionStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay;  // 1 - lr * weight_decay
  float lr, gradient_scale;
};

// The state of n elements. `weight` may be null.
struct MomentumMemory {
  EitherMemory master, momentum;
  Bf16* weight;
};

struct MomentumKernels {
  void (*sgd)(MomentumMemory memory, const float* gradient, int64_t n, SgdStep step);
  void (*lion)(MomentumMemory memory, const float* gradient, int64_t n, LionStep step);
  const BlockwiseKernels* blockwise;  // for 8-bit states
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const MomentumKernels momentum_kernels;)
