// Register loops that run at the machine's arithmetic peak.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

constexpr int64_t peak_result_stride = 256;

struct PeakKernels {
  // Runs `rounds` rounds and returns the FLOPs done. `result` (peak_result_stride floats) keeps the computation from
  // being optimised away.
  double (*fused_multiply_adds)(int64_t rounds, float* result);
  double (*bf16_dot_products)(int64_t rounds, float* result);  // null at levels without such an instruction
  // Reads n floats; returns a value that depends on all of their bits, so that the reads are not optimised away.
  float (*read)(const float* data, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const PeakKernels peak_kernels;)
