#include "backend/cpu/simd/sampling.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// As ops/sampling_weight.h, whose arithmetic is copied for the rules of levels.h; infer's tests compare the choices.
INGOT_INLINE uint64_t weight(float power) {
  const float bounded = power > -48.0F ? power : -48.0F;
  const int64_t fixed = (int64_t)(bounded * 0x1p32F);
  const uint64_t fraction = (uint64_t)fixed & 0xffffffffU;
  uint64_t series = 437;
  series = 5676 + (fraction * series >> 32);
  series = 65510 + (fraction * series >> 32);
  series = 661577 + (fraction * series >> 32);
  series = 5726720 + (fraction * series >> 32);
  series = 41309550 + (fraction * series >> 32);
  series = 238388332 + (fraction * series >> 32);
  series = 1031764991 + (fraction * series >> 32);
  series = 2977044472 + (fraction * series >> 32);
  const uint64_t mantissa = ((uint64_t)1 << 32) + (fraction * series >> 32);
  return (mantissa << 8) >> (uint64_t)-(fixed >> 32);
}

float largest_of(const float* logits, int64_t n, bool* good) {
  float top = logits[0];
  int bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    bad |= !(logits[i] <= __FLT_MAX__);
    top = logits[i] > top ? logits[i] : top;
  }
  *good = bad == 0;
  return top;
}

uint64_t weigh(const float* logits, int64_t n, float highest, float scale, uint64_t* weights) {
  uint64_t sum = 0;
  if (weights == nullptr) {
    for (int64_t i = 0; i < n; ++i) sum += weight((logits[i] - highest) * scale);
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = weight((logits[i] - highest) * scale);
    sum += weights[i];
  }
  return sum;
}

}  // namespace

const SamplingKernels sampling_kernels = {largest_of, weigh};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
