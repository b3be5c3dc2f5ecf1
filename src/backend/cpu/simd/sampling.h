// The long loops of sampling: over all logits of a row.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct SamplingKernels {
  // The largest of n logits; `good` says that none of them is NaN or +infinity.
  float (*largest)(const float* logits, int64_t n, bool* good);
  // The place of the first of n logits that is `wanted`; n where none is.
  int64_t (*first_of)(const float* logits, int64_t n, float wanted);
  // ops::sampling_weight((logit - highest) * scale) of each in `weights` (unless null), and their sum.
  uint64_t (*weigh)(const float* logits, int64_t n, float highest, float scale, uint64_t* weights);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const SamplingKernels sampling_kernels;)
