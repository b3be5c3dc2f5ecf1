// The AdamW update, and sums of squares.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/blockwise.h"
#include "backend/cpu/simd/either_memory.h"
#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct AdamwStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float epsilon;
  float decay;      // 1 - lr * weight_decay
  float step_size;  // lr / (1 - beta1^step)
  float root;       // sqrt(1 - beta2^step)
  float gradient_scale;
};

// The state of n elements. `weight` may be null.
struct AdamwMemory {
  EitherMemory master, moment1, moment2;
  Bf16* weight;
};

struct AdamwKernels {
  void (*update)(AdamwMemory memory, const float* gradient, int64_t n, AdamwStep step);
  // Sum of x^2 in fp64, in a fixed order.
  double (*sum_squares)(const float* x, int64_t n);
  const BlockwiseKernels* blockwise;  // for 8-bit states
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const AdamwKernels adamw_kernels;)
