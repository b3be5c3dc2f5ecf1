// Cross-entropy of one row of logits.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

struct CrossEntropyKernels {
  // The loss of row `logits` [n] for `target` in [0, n). At most one of dlogits_f32 (may be logits) and dlogits_bf16 is
  // not null; it is assigned softmax - one-hot.
  float (*row)(const float* logits, int64_t n, int64_t target, float* dlogits_f32, Bf16* dlogits_bf16);
  // log(sum exp(logits)).
  float (*log_sum_exp)(const float* logits, int64_t n);
  // exp(logits - lse), less 1 at `target`, which may be outside [0, n). One of the results is not null.
  void (*gradient)(const float* logits, int64_t n, float lse, int64_t target, float* dlogits_f32, Bf16* dlogits_bf16);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const CrossEntropyKernels cross_entropy_kernels;)
