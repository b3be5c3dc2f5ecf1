// Block-wise 8-bit quantisation of one block.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// Of a map of 256 ascending values: code c is the nearest for values above lower[c], up to upper[c].
struct BlockwiseTables {
  float lower[256];
  float upper[256];
  bool is_signed;
};

struct BlockwiseKernels {
  // codes [n] = the nearest codes of x [n] divided by its largest magnitude, which is returned.
  float (*quantize)(uint8_t* codes, const float* x, int64_t n, const BlockwiseTables& tables);
  // x [n] = map[codes [n]] * scale
  void (*dequantize)(float* x, const uint8_t* codes, int64_t n, const float* map, float scale);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const BlockwiseKernels blockwise_kernels;)
