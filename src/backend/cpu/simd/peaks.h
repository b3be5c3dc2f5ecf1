// Register loops that run at the machine's arithmetic peak.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

constexpr int64_t peak_sink = 256;

struct PeakKernels {
  // Runs `rounds` rounds and returns the FLOPs done. `sink`, peak_sink floats, keeps the result alive.
  double (*fused_multiply_adds)(int64_t rounds, float* sink);
  double (*bf16_dots)(int64_t rounds, float* sink);  // null where the level has no such instruction
  // Reads n floats; returns their sum's bits mixed, so that the reads are not removed.
  float (*read)(const float* data, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const PeakKernels peak_kernels;)
