// The functions of simd/simd.h over arrays, at every level, for simd_functions_test.cpp.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct SimdFunctions {
  // y [n] = the function of x [n]; n is a multiple of 16.
  using Function = void(float* y, const float* x, int64_t n);
  Function* exp;
  Function* exp2;
  Function* reciprocal;
  Function* tanh;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const SimdFunctions simd_functions;)
