#include "backend/cpu/simd/fixed_sum.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// Plain loops over independent elements, which the compiler vectorises if the level supports it.
template <bool accumulate>
uint32_t add_all(int64_t* __restrict sum, const float* __restrict x, int64_t n, double factor, double limit) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffU;
    largest = magnitude > largest ? magnitude : largest;
    const double scaled = static_cast<double>(x[i]) * factor;
    const double kept = __builtin_fabs(scaled) < limit ? scaled : 0.0;
    const int64_t rounded = static_cast<int64_t>(__builtin_rint(kept));
    sum[i] = accumulate ? sum[i] + rounded : rounded;
  }
  return largest;
}

uint32_t add(int64_t* sum, const float* x, int64_t n, double factor, double limit, bool accumulate) {
  return accumulate ? add_all<true>(sum, x, n, factor, limit) : add_all<false>(sum, x, n, factor, limit);
}

void to_float(float* __restrict y, const int64_t* __restrict sum, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<double>(sum[i]) * factor);
}

}  // namespace

const FixedSumKernels fixed_sum_kernels = {add, to_float};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
