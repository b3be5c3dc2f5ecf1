// Contributions to sums in fixed point.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct FixedSumKernels {
  // sum (+)= round(x * factor), 0 for what is not below `limit` in magnitude then. Returns the largest |x|'s bits.
  uint32_t (*add)(int64_t* sum, const float* x, int64_t n, double factor, double limit, bool accumulate);
  // y = sum * factor.
  void (*to_float)(float* y, const int64_t* sum, int64_t n, double factor);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const FixedSumKernels fixed_sum_kernels;)
