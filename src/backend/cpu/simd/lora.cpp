// Outputs are contiguous in y, but ranks are contiguous in B. So B is transposed, as many of its rows at a time as a
// vector has lanes, and nothing is summed across lanes.
#include "backend/cpu/simd/lora.h"

#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// columns [rank, lanes] = `rows` rows of B (at most `lanes`), transposed; the remaining lanes are 0.
template <class T>
void transpose_rows(float* columns, const T* b, int64_t rows, int64_t rank) {
#if defined(INGOT_SIMD_avx512)
  for_each_vector(0, rank, [&](int64_t first, auto extent) {
    __m512 r[lanes];
    for (int64_t i = 0; i < lanes; ++i) {
      r[i] = i < rows ? (__m512)load(b + i * rank + first, extent) : _mm512_setzero_ps();
    }
    transpose16(r);
    const int64_t count = rank - first < lanes ? rank - first : lanes;
    for (int64_t i = 0; i < count; ++i) store(columns + (first + i) * lanes, (Floats)r[i], AllLanes{});
  });
#else
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t i = 0; i < lanes; ++i) columns[r * lanes + i] = i < rows ? widen(b[i * rank + r]) : 0.0F;
  }
#endif
}

// Adds a vector of outputs of `tokens` tokens, whose rows of y are `y_row` apart.
template <int tokens, class Y, class Extent>
INGOT_INLINE void add(Y* y, int64_t y_row, const float* columns, const float* low, int64_t rank, Extent extent) {
  Floats sums[tokens];
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) sums[t] = Floats{};
  for (int64_t r = 0; r < rank; ++r) {
    const Floats column = load(columns + r * lanes, AllLanes{});
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) sums[t] = fma(column, splat(low[t * rank + r]), sums[t]);
  }
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) store(y + t * y_row, load(y + t * y_row, extent) + sums[t], extent);
}

template <class T, class Y>
void up_to(Y* y, const T* b, const float* low, float* columns, int64_t tokens, int64_t rank, int64_t out) {
  constexpr int tokens_per_pass = 8;  // independent sums, to hide the latency of an fma
  for_each_vector(0, out, [&](int64_t o, auto extent) {
    transpose_rows(columns, b + o * rank, out - o < lanes ? out - o : lanes, rank);
    int64_t t = 0;
    for (; t + tokens_per_pass <= tokens; t += tokens_per_pass)
      add<tokens_per_pass>(y + t * out + o, out, columns, low + t * rank, rank, extent);
    for (; t < tokens; ++t) add<1>(y + t * out + o, out, columns, low + t * rank, rank, extent);
  });
}

template <class T>
void up(float* y_float, T* y_own, const T* b, const float* low, float* columns, int64_t tokens, int64_t rank,
        int64_t out) {
  if (y_float != nullptr) return up_to(y_float, b, low, columns, tokens, rank, out);
  up_to(y_own, b, low, columns, tokens, rank, out);
}

}  // namespace

const LoraKernels lora_kernels = {&skinny_gemm_kernels, {up<float>, up<Bf16>, up<F16>}, lanes};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
