#include "backend/cpu/simd/moe.h"

#include "backend/cpu/simd/row_sums.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class T>
void combine(T* y, const T* z, const int32_t* rows, const float* weights, int64_t k, int64_t n, bool accumulate) {
  for_each_vector(0, n, [&](int64_t j, auto extent) {
    Floats total = accumulate ? load(y + j, extent) : Floats{};
    for (int64_t i = 0; i < k; ++i) {
      const Floats row = load(z + rows[i] * n + j, extent);
      total = weights == nullptr ? total + row : fma(splat(weights[i]), row, total);
    }
    store(y + j, total, extent);
  });
}

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  return sum_of(
      n, [&](Floats total, int64_t j, auto extent) { return fma(load(a + j, extent), load(b + j, extent), total); });
}

template <class T>
void scale(T* y, const T* x, float weight, int64_t n) {
  for_each_vector(0, n, [&](int64_t j, auto extent) { store(y + j, load(x + j, extent) * weight, extent); });
}

}  // namespace

const MoeKernels moe_kernels = {
    {combine<float>, combine<Bf16>, combine<F16>}, dot<float>, dot<Bf16>, scale<float>, scale<Bf16>};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
