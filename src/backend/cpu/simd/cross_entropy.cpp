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

float row(const float* logits, int64_t n, int64_t target, float* dlogits_f32, Bf16* dlogits_bf16) {
  const float first = logits[0];
  Floats maxima = splat(first);
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    maxima = max_ignoring_nan(maxima, pad(load(logits + i, extent), extent, first));
  });
  const float max_logit = reduce_max(maxima);
  Floats sums{};
  for_each_vector(
      0, n, [&](int64_t i, auto extent) { sums += pad(exp(load(logits + i, extent) - max_logit), extent, 0.0F); });
  const float total = reduce_add(sums);
  const float loss = __builtin_logf(total) + (max_logit - logits[target]);
  if (dlogits_f32 != nullptr) gradient(logits, n, target, max_logit, 1.0F / total, dlogits_f32);
  if (dlogits_bf16 != nullptr) gradient(logits, n, target, max_logit, 1.0F / total, dlogits_bf16);
  return loss;
}

}  // namespace

const CrossEntropyKernels cross_entropy_kernels = {row};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
