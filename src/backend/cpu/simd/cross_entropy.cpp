#include "backend/cpu/simd/cross_entropy.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The maximum; b if either is NaN. A NaN logit still makes the row's loss NaN, because its exp is NaN.
INGOT_INLINE Floats max_ignoring_nan(Floats a, Floats b) { return b <= a ? a : b; }

template <class D>
void gradient(const float* logits, int64_t n, int64_t target, float max_logit, float inverse, D* dlogits) {
  const float at_target = logits[target];
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    store(dlogits + i, exp(load(logits + i, extent) - max_logit) * inverse, extent);
  });
  // Computed in fp32 before rounding, as every other element is.
  const float target_gradient = (exp(splat(at_target - max_logit)) * inverse)[0] - 1.0F;
  if constexpr (sizeof(D) == sizeof(float)) {
    dlogits[target] = target_gradient;
  } else {
    dlogits[target].bits = to_bf16(splat(target_gradient))[0];
  }
}

// The largest logit, and the sum of exponentials relative to it.
struct Exponentials {
  float max_logit;
  float total;
};

INGOT_INLINE Exponentials exponentials(const float* logits, int64_t n) {
  const float first = logits[0];
  Floats maxima = splat(first);
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    maxima = max_ignoring_nan(maxima, pad(load(logits + i, extent), extent, first));
  });
  const float max_logit = reduce_max(maxima);
  Floats sums{};
  for_each_vector(
      0, n, [&](int64_t i, auto extent) { sums += pad(exp(load(logits + i, extent) - max_logit), extent, 0.0F); });
  return {max_logit, reduce_add(sums)};
}

float row(const float* logits, int64_t n, int64_t target, float* dlogits_f32, Bf16* dlogits_bf16) {
  const auto [max_logit, total] = exponentials(logits, n);
  const float loss = __builtin_logf(total) + (max_logit - logits[target]);
  if (dlogits_f32 != nullptr) gradient(logits, n, target, max_logit, 1.0F / total, dlogits_f32);
  if (dlogits_bf16 != nullptr) gradient(logits, n, target, max_logit, 1.0F / total, dlogits_bf16);
  return loss;
}

float log_sum_exp(const float* logits, int64_t n) {
  const auto [max_logit, total] = exponentials(logits, n);
  return __builtin_logf(total) + max_logit;
}

template <class D>
void part_gradient(const float* logits, int64_t n, float lse, int64_t target, D* dlogits) {
  if (target >= 0 && target < n) return gradient(logits, n, target, lse, 1.0F, dlogits);
  for_each_vector(0, n,
                  [&](int64_t i, auto extent) { store(dlogits + i, exp(load(logits + i, extent) - lse), extent); });
}

void gradient_of_part(const float* logits, int64_t n, float lse, int64_t target, float* dlogits_f32,
                      Bf16* dlogits_bf16) {
  if (dlogits_f32 != nullptr) part_gradient(logits, n, lse, target, dlogits_f32);
  if (dlogits_bf16 != nullptr) part_gradient(logits, n, lse, target, dlogits_bf16);
}

}  // namespace

const CrossEntropyKernels cross_entropy_kernels = {row, log_sum_exp, gradient_of_part};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
