#include "backend/cpu/simd/cross_entropy.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The larger one; b if either is NaN. A NaN logit still makes the row's loss NaN, because its exp is NaN.
INGOT_INLINE Floats larger(Floats a, Floats b) { return b <= a ? a : b; }

template <class D>
void gradient(const float* logits, int64_t n, int64_t target, float top, float inverse, D* dlogits) {
  const float at_target = logits[target];
  sweep(0, n,
        [&](int64_t i, auto extent) { store(dlogits + i, exp(load(logits + i, extent) - top) * inverse, extent); });
  // Computed in fp32 before rounding, as every other element is.
  const float rest = (exp(splat(at_target - top)) * inverse)[0] - 1.0F;
  if constexpr (sizeof(D) == sizeof(float)) {
    dlogits[target] = rest;
  } else {
    dlogits[target].bits = to_bf16(splat(rest))[0];
  }
}

float row(const float* logits, int64_t n, int64_t target, float* dlogits_f32, Bf16* dlogits_bf16) {
  const float first = logits[0];
  Floats highest = splat(first);
  sweep(0, n, [&](int64_t i, auto extent) { highest = larger(highest, pad(load(logits + i, extent), extent, first)); });
  const float top = largest(highest);
  Floats sums{};
  sweep(0, n, [&](int64_t i, auto extent) { sums += pad(exp(load(logits + i, extent) - top), extent, 0.0F); });
  const float total = sum(sums);
  const float loss = __builtin_logf(total) + (top - logits[target]);
  if (dlogits_f32 != nullptr) gradient(logits, n, target, top, 1.0F / total, dlogits_f32);
  if (dlogits_bf16 != nullptr) gradient(logits, n, target, top, 1.0F / total, dlogits_bf16);
  return loss;
}

}  // namespace

const CrossEntropyKernels cross_entropy_kernels = {row};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
