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

float largest_of(const float* logits, int64_t n, bool* all_valid) {
  constexpr int chains = 4;  // independent chains, because a comparison waits for the previous one of its chain
  Floats maxima[chains];
  Ints valid[chains];
  for (int c = 0; c < chains; ++c) {
    maxima[c] = splat(logits[0]);
    valid[c] = Ints{} - 1;
  }
  const auto update = [&](int c, Floats x) {
    valid[c] &= x <= __FLT_MAX__;
    maxima[c] = max(maxima[c], x);
  };
  int64_t i = 0;
  for (; i + chains * lanes <= n; i += chains * lanes) {
    INGOT_UNROLL
    for (int c = 0; c < chains; ++c) update(c, load(logits + i + c * lanes, AllLanes{}));
  }
  for_each_vector(i, n, [&](int64_t j, auto extent) { update(0, pad(load(logits + j, extent), extent, logits[0])); });
  const Ints all = (valid[0] & valid[1]) & (valid[2] & valid[3]);
  int32_t and_of_lanes = -1;
  for (int lane = 0; lane < lanes; ++lane) and_of_lanes &= all[lane];
  *all_valid = and_of_lanes != 0;
  return reduce_max(max(max(maxima[0], maxima[1]), max(maxima[2], maxima[3])));
}

int64_t first_of(const float* logits, int64_t n, float wanted) {
  constexpr int64_t block = 16 * lanes;
  int64_t i = 0;
  for (; i + block <= n; i += block) {
    Ints found{};
    for (int64_t j = i; j < i + block; j += lanes) found |= load(logits + j, AllLanes{}) == wanted;
    int32_t or_of_lanes = 0;
    for (int lane = 0; lane < lanes; ++lane) or_of_lanes |= found[lane];
    if (or_of_lanes != 0) break;
  }
  while (i < n && logits[i] != wanted) ++i;
  return i;
}

double sum_exp(const float* logits, int64_t n, float highest) {
  constexpr int chains = 4;  // independent, and short, so that few terms are added in fp32
  constexpr float log2_e = 1.44269504F;
  Floats sums[chains] = {};
  const auto term = [&](Floats x) { return exp2((x - highest) * log2_e); };
  int64_t i = 0;
  for (; i + chains * lanes <= n; i += chains * lanes) {
    INGOT_UNROLL
    for (int c = 0; c < chains; ++c) sums[c] = sums[c] + term(load(logits + i + c * lanes, AllLanes{}));
  }
  for_each_vector(
      i, n, [&](int64_t j, auto extent) { sums[0] = sums[0] + pad(term(load(logits + j, extent)), extent, 0.0F); });
  double sum = 0;
  for (int c = 0; c < chains; ++c) {
    for (int lane = 0; lane < lanes; ++lane) sum += (double)sums[c][lane];
  }
  return sum;
}

uint64_t weigh(const float* logits, int64_t n, float highest, float scale, uint64_t* weights) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = weight((logits[i] - highest) * scale);
    sum += weights[i];
  }
  return sum;
}

}  // namespace

const SamplingKernels sampling_kernels = {largest_of, first_of, sum_exp, weigh};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
