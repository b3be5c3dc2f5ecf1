// Kernels of fixed-point sums.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct FixedSumKernels {
  // sum (+)= round(x * factor), or 0 unless |x * factor| is below `limit`. Returns the bits of the largest |x|.
  uint32_t (*add)(int64_t* sum, const float* x, int64_t n, double factor, double limit, bool accumulate);
  // y = sum * factor.
  void (*to_float)(float* y, const int64_t* sum, int64_t n, double factor);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const FixedSumKernels fixed_sum_kernels;)
