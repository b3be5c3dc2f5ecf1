#include "backend/cpu/simd/lora.h"

#include "backend/cpu/simd/row_sums.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class T>
void down(float* low, const T* a, const T* x, int64_t rank, int64_t in, float factor) {
  for (int64_t r = 0; r < rank; ++r) {
    const T* row = a + r * in;
    low[r] = factor * sum_of(in, [&](Floats total, int64_t j, auto extent) {
               return fma(load(row + j, extent), load(x + j, extent), total);
             });
  }
}

template <class T, class Extent>
INGOT_INLINE float dot_short(const T* b, Floats low, Extent extent) {
  return sum(load(b, extent) * low);
}

// Ranks that fit a vector, without a loop over them.
template <class T, class Y, class Extent>
INGOT_INLINE void up_short(Y* y, const T* b, const float* low, int64_t rank, int64_t out, Extent extent) {
  const Floats held = load(low, extent);
  for (int64_t o = 0; o < out; ++o) narrow(y[o], widen(y[o]) + dot_short(b + o * rank, held, extent));
}

template <class T, class Y>
INGOT_INLINE void up_to(Y* y, const T* b, const float* low, int64_t rank, int64_t out) {
  if (rank == lanes) return up_short(y, b, low, rank, out, Whole{});
  if (rank < lanes) return up_short(y, b, low, rank, out, Part{static_cast<int>(rank)});
  for (int64_t o = 0; o < out; ++o) {
    Floats total{};
    sweep(0, rank,
          [&](int64_t r, auto extent) { total = fma(load(b + o * rank + r, extent), load(low + r, extent), total); });
    narrow(y[o], widen(y[o]) + sum(total));
  }
}

template <class T>
void up(T* y_own, float* y_float, const T* b, const float* low, int64_t rank, int64_t out) {
  if (y_own != nullptr) return up_to(y_own, b, low, rank, out);
  up_to(y_float, b, low, rank, out);
}

}  // namespace

const LoraKernels lora_kernels = {{down<float>, down<Bf16>, down<F16>}, {up<float>, up<Bf16>, up<F16>}};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
