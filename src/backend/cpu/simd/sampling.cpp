#include "backend/cpu/simd/sampling.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// As ops/sampling_weight.h; the arithmetic is copied because of the rules of levels.h. infer's tests compare the
// sampled tokens.
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
  constexpr int chains = 4;  // independent chains, because a comparison waits for the previous one of its chain
  Floats tops[chains];
  Ints fine[chains];
  for (int c = 0; c < chains; ++c) {
    tops[c] = splat(logits[0]);
    fine[c] = Ints{} - 1;
  }
  const auto look = [&](int c, Floats x) {
    fine[c] &= x <= __FLT_MAX__;
    tops[c] = max(tops[c], x);
  };
  int64_t i = 0;
  for (; i + chains * lanes <= n; i += chains * lanes) {
    INGOT_UNROLL
    for (int c = 0; c < chains; ++c) look(c, load(logits + i + c * lanes, Whole{}));
  }
  sweep(i, n, [&](int64_t j, auto extent) { look(0, pad(load(logits + j, extent), extent, logits[0])); });
  const Ints all = (fine[0] & fine[1]) & (fine[2] & fine[3]);
  int32_t every = -1;
  for (int lane = 0; lane < lanes; ++lane) every &= all[lane];
  *good = every != 0;
  return largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

int64_t first_of(const float* logits, int64_t n, float wanted) {
  constexpr int64_t block = 16 * lanes;
  int64_t i = 0;
  for (; i + block <= n; i += block) {
    Ints found{};
    for (int64_t j = i; j < i + block; j += lanes) found |= load(logits + j, Whole{}) == wanted;
    int32_t any = 0;
    for (int lane = 0; lane < lanes; ++lane) any |= found[lane];
    if (any != 0) break;
  }
  while (i < n && logits[i] != wanted) ++i;
  return i;
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

const SamplingKernels sampling_kernels = {largest_of, first_of, weigh};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
