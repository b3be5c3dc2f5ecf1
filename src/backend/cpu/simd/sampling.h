// The loops of sampling over all logits of a row.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct SamplingKernels {
  // The largest of n logits; `all_valid` is set to whether none of them is NaN or +infinity.
  float (*largest)(const float* logits, int64_t n, bool* all_valid);
  // Index of the first of n logits that equals `wanted`; n if none does.
  int64_t (*first_of)(const float* logits, int64_t n, float wanted);
  // The sum of e^(logit - highest) over n logits, none above `highest`.
  double (*sum_exp)(const float* logits, int64_t n, float highest);
  // weights = ops::sampling_weight((logit - highest) * scale) of each logit; returns their sum.
  uint64_t (*weigh)(const float* logits, int64_t n, float highest, float scale, uint64_t* weights);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const SamplingKernels sampling_kernels;)
