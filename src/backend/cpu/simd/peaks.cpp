#include "backend/cpu/simd/peaks.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

constexpr int chains = 12;  // independent sums: latency 4 times 2 units, and some more

double fused_multiply_adds(int64_t rounds, float* result) {
  Floats sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = splat(static_cast<float>(i));
  Floats a = splat(0.999F);
  const Floats b = splat(0.001F);
  for (int64_t round = 0; round < rounds; ++round) {
#if defined(__x86_64__)
    asm volatile("" : "+v"(a));  // keeps the compiler from folding the loop
#endif
    INGOT_UNROLL
    for (int i = 0; i < chains; ++i) sums[i] = fma(sums[i], a, b);
  }
  for (int i = 0; i < chains; ++i) *result += reduce_add(sums[i]);
  return 2.0 * lanes * chains * static_cast<double>(rounds);
}

#if defined(__AVX512BF16__)
double bf16_dot_products(int64_t rounds, float* result) {
  __m512 sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_set1_ps(0.0F);
  __m512i a = _mm512_set1_epi16(0x3f80);
  const __m512i b = _mm512_set1_epi16(0x3c00);
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(a));
    INGOT_UNROLL
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)a, (__m512bh)b);
  }
  for (int i = 0; i < chains; ++i) *result += reduce_add((Floats)sums[i]);
  return 4.0 * lanes * chains * static_cast<double>(rounds);
}
#endif

float read(const float* data, int64_t n) {
  Words mixed[8] = {};
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    for (int way = 0; way < 8; ++way) mixed[way] ^= words(load(data + i + way * lanes, AllLanes{}));
  }
  for (int way = 1; way < 8; ++way) mixed[0] ^= mixed[way];
  return reduce_add(__builtin_convertvector(mixed[0], Floats));
}

}  // namespace

#if defined(__AVX512BF16__)
const PeakKernels peak_kernels = {fused_multiply_adds, bf16_dot_products, read};
#else
const PeakKernels peak_kernels = {fused_multiply_adds, nullptr, read};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
