// fp32 vectors based on the compiler's vector extension: 16, 8 or 4 lanes, depending on the level. Included by
// simd/*.cpp only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/simd/levels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Unrolls the following loop of constant length completely, so that the arrays it indexes stay in registers.
#if defined(__clang__)
#define INGOT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define INGOT_UNROLL _Pragma("GCC unroll 32")
#endif

#define INGOT_INLINE static inline __attribute__((always_inline))
#define INGOT_NOINLINE __attribute__((noinline))

// Of functions that load or store some of the lanes. The address sanitizer checks each lane apart: wherever they are
// inlined, these checks are most of what there is to compile.
#define INGOT_MASKED INGOT_INLINE
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef INGOT_MASKED
#define INGOT_MASKED static inline INGOT_NOINLINE
#endif
#endif

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef uint32_t Words __attribute__((vector_size(4 * lanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));

// x - 0 is x for every x (0 + x is not, for -0), so the compiler reduces this to a broadcast.
INGOT_INLINE Floats splat(float x) { return x - Floats{}; }
INGOT_INLINE Words words(Floats x) { return (Words)x; }
INGOT_INLINE Floats floats(Words x) { return (Floats)x; }

// a b + c, rounded once if the level has the instruction (avx2, avx512, aarch64), twice on plain x86.
INGOT_INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// Like std::max and std::min with swapped arguments: b when either is NaN.
INGOT_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }
INGOT_INLINE Floats min(Floats a, Floats b) { return a < b ? a : b; }

INGOT_INLINE Floats sqrt(Floats x) {
#if defined(__AVX512F__)
  return (Floats)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)x);
#else
  for (int i = 0; i < lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Conversions between 16-bit patterns and fp32.
INGOT_INLINE Floats from_bf16(Halves bits) { return floats(__builtin_convertvector(bits, Words) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
INGOT_INLINE Halves to_bf16(Floats x) {
  const Words bits = words(x);
  const Words rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const Words quiet = bits | 0x400000U;
  return __builtin_convertvector(((x != x) ? quiet : rounded) >> 16, Halves);
}

// Like to_bf16, in one instruction if the level has it; results below 2^-126 may become 0.
INGOT_INLINE Halves to_bf16_or_zero(Floats x) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh((__m512)x);
#else
  return to_bf16(x);
#endif
}

// Exact, subnormals included: with the level's instruction, or by re-basing the exponent with a multiplication by
// 2^112.
INGOT_INLINE Floats from_f16(Halves half) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)half);
#elif defined(__AVX2__)
  return (Floats)_mm256_cvtph_ps((__m128i)half);
#else
  const Words wide = __builtin_convertvector(half, Words);
  const Words scaled = words(floats((wide & 0x7fffU) << 13) * 0x1p112F);
  const Words special = scaled | 0x7f800000U;  // infinity or NaN
  const Words magnitude = (wide & 0x7c00U) == 0x7c00U ? special : scaled;
  return floats(magnitude | (wide & 0x8000U) << 16);
#endif
}

// Rounds to nearest, ties to even, subnormals included; infinity from 65520 on.
INGOT_INLINE Halves to_f16(Floats x) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return (Halves)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Words bits = words(x);
  const Words sign = (bits >> 16) & 0x8000U;
  const Words magnitude = bits & 0x7fffffffU;
  const Words rebased = magnitude - (112U << 23);
  const Words normal = (rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13;
  // Below 2^-14: adding 0.5 leaves the value in units of 2^-24, rounded by the hardware.
  const Words subnormal = words(floats(magnitude) + 0.5F) - 0x3f000000U;
  const Words finite = magnitude < (113U << 23) ? subnormal : normal;
  const Words bounded = magnitude >= 0x477ff000U ? (Words{} + 0x7c00U) : finite;
  const Words nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  return __builtin_convertvector(((x != x) ? nan : bounded) | sign, Halves);
#endif
}

// Which lanes a load or store accesses: all, or the first `count` (1 .. lanes - 1); loads set the other lanes to 0.
struct AllLanes {};
struct FirstLanes {
  int count;
};

INGOT_INLINE Floats load(const float* p, AllLanes) {
  Floats x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
INGOT_INLINE void store(float* p, Floats x, AllLanes) { __builtin_memcpy(p, &x, sizeof x); }

INGOT_INLINE Halves load_halves(const void* p, AllLanes) {
  Halves x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

#if defined(__AVX512F__)
INGOT_MASKED Floats load(const float* p, FirstLanes extent) {
  return (Floats)_mm512_maskz_loadu_ps((__mmask16)((1U << extent.count) - 1U), p);
}
INGOT_MASKED void store(float* p, Floats x, FirstLanes extent) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1U << extent.count) - 1U), (__m512)x);
}
INGOT_MASKED Halves load_halves(const void* p, FirstLanes extent) {
  return (Halves)_mm256_maskz_loadu_epi16((__mmask16)((1U << extent.count) - 1U), p);
}
#else
INGOT_MASKED Floats load(const float* p, FirstLanes extent) {
  Floats x{};
  for (int i = 0; i < extent.count; ++i) x[i] = p[i];
  return x;
}
INGOT_MASKED void store(float* p, Floats x, FirstLanes extent) {
  for (int i = 0; i < extent.count; ++i) p[i] = x[i];
}
INGOT_MASKED Halves load_halves(const void* p, FirstLanes extent) {
  Halves x{};
  for (int i = 0; i < extent.count; ++i) x[i] = static_cast<const uint16_t*>(p)[i];
  return x;
}
#endif

INGOT_INLINE void store_halves(void* p, Halves x, AllLanes) { __builtin_memcpy(p, &x, sizeof x); }
INGOT_MASKED void store_halves(void* p, Halves x, FirstLanes extent) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, (__mmask16)((1U << extent.count) - 1U), (__m256i)x);
#else
  for (int i = 0; i < extent.count; ++i) static_cast<uint16_t*>(p)[i] = x[i];
#endif
}

template <class Extent>
INGOT_INLINE Floats load(const Bf16* p, Extent extent) {
  return from_bf16(load_halves(p, extent));
}
template <class Extent>
INGOT_INLINE void store(Bf16* p, Floats x, Extent extent) {
  store_halves(p, to_bf16(x), extent);
}
template <class Extent>
INGOT_INLINE Floats load(const F16* p, Extent extent) {
  return from_f16(load_halves(p, extent));
}
template <class Extent>
INGOT_INLINE void store(F16* p, Floats x, Extent extent) {
  store_halves(p, to_f16(x), extent);
}

// Like store, but results below 2^-126 may become 0 when rounded; for computed values, where this does not matter.
template <class T, class Extent>
INGOT_INLINE void store_computed(T* p, Floats x, Extent extent) {
  store(p, x, extent);
}
template <class Extent>
INGOT_INLINE void store_computed(Bf16* p, Floats x, Extent extent) {
  store_halves(p, to_bf16_or_zero(x), extent);
}

// Two vectors that together hold consecutive elements, in an order that store_pair reverses. For element-wise kernels:
// bf16 is unpacked and packed with fewer instructions than two vectors in order.
struct Pair {
  Floats first, second;
};
template <class T>
INGOT_INLINE Pair load_pair(const T* p) {
  return {load(p, AllLanes{}), load(p + lanes, AllLanes{})};
}
template <class T>
INGOT_INLINE void store_pair(T* p, Pair x) {
  store_computed(p, x.first, AllLanes{});
  store_computed(p + lanes, x.second, AllLanes{});
}
#if defined(__AVX512BF16__)
INGOT_INLINE Pair load_pair(const Bf16* p) {
  Words words_of;
  __builtin_memcpy(&words_of, p, sizeof words_of);  // p need not be aligned for a word: rows may have odd lengths
  return {floats(words_of << 16), floats(words_of & 0xffff0000U)};
}
INGOT_INLINE void store_pair(Bf16* p, Pair x) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)x.second, (__m512)x.first);
  alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(order), both));
}
#endif

// Conversion of one element.
INGOT_INLINE float widen(float x) { return x; }
INGOT_INLINE float widen(Bf16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
INGOT_INLINE float widen(F16 x) {
#if defined(__AVX2__)
  return _cvtsh_ss(x.bits);
#else
  return from_f16(Halves{} + x.bits)[0];
#endif
}
INGOT_INLINE void narrow(float& y, float x) { y = x; }
INGOT_INLINE void narrow(Bf16& y, float x) { y.bits = to_bf16(splat(x))[0]; }
INGOT_INLINE void narrow(F16& y, float x) { y.bits = to_f16(splat(x))[0]; }

// Calls body(i, extent) for the vectors that cover elements [begin, end). The extent is AllLanes, but for the last
// vector if it is not full.
template <class Body>
INGOT_INLINE void for_each_vector(int64_t begin, int64_t end, Body body) {
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(i, AllLanes{});
  if (i < end) body(i, FirstLanes{static_cast<int>(end - i)});
}

// Sum and maximum of the lanes, by halving, so that the order of additions is fixed.
INGOT_INLINE float reduce_add(Floats x) {
  float lane[lanes];
  __builtin_memcpy(lane, &x, sizeof lane);
  for (int width = lanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
INGOT_INLINE float reduce_max(Floats x) {
  float lane[lanes];
  __builtin_memcpy(lane, &x, sizeof lane);
  for (int width = lanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
  }
  return lane[0];
}

// Lane i is the sum, or the maximum, of the lanes of row i, with the same bits as reduce_add() and reduce_max().
#if defined(__AVX512F__)
template <class Fold>
INGOT_INLINE Floats reduce_rows(const Floats (&rows)[lanes], Fold combine) {
  const auto halves = [&](Floats a, Floats b) {
    return combine((Floats)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0b01'00'01'00),
                   (Floats)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0b11'10'11'10));
  };
  const auto quarters = [&](Floats a, Floats b) {
    return combine((Floats)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0b10'00'10'00),
                   (Floats)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0b11'01'11'01));
  };
  const auto pairs = [&](Floats a, Floats b) {
    return combine((Floats)_mm512_unpacklo_pd((__m512d)a, (__m512d)b),
                   (Floats)_mm512_unpackhi_pd((__m512d)a, (__m512d)b));
  };
  const auto neighbours = [&](Floats a, Floats b) {
    return combine((Floats)_mm512_shuffle_ps((__m512)a, (__m512)b, 0b10'00'10'00),
                   (Floats)_mm512_shuffle_ps((__m512)a, (__m512)b, 0b11'01'11'01));
  };
  Floats fours[4];  // 128 bits of each of the rows i, i + 4, i + 8, i + 12
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) fours[i] = quarters(halves(rows[i], rows[i + 4]), halves(rows[i + 8], rows[i + 12]));
  return neighbours(pairs(fours[0], fours[1]), pairs(fours[2], fours[3]));
}
INGOT_INLINE Floats reduce_add_rows(const Floats (&rows)[lanes]) {
  return reduce_rows(rows, [](Floats a, Floats b) { return a + b; });
}
INGOT_INLINE Floats reduce_max_rows(const Floats (&rows)[lanes]) {
  return reduce_rows(rows, [](Floats a, Floats b) { return max(a, b); });
}
#else
INGOT_INLINE Floats reduce_add_rows(const Floats (&rows)[lanes]) {
  Floats sums;
  for (int i = 0; i < lanes; ++i) sums[i] = reduce_add(rows[i]);
  return sums;
}
INGOT_INLINE Floats reduce_max_rows(const Floats (&rows)[lanes]) {
  Floats maxima;
  for (int i = 0; i < lanes; ++i) maxima[i] = reduce_max(rows[i]);
  return maxima;
}
#endif

// Sets the lanes after the last element to `filler`: after arithmetic they are not 0 any more.
INGOT_INLINE Floats pad(Floats x, AllLanes, float) { return x; }
INGOT_INLINE Floats pad(Floats x, FirstLanes extent, float filler) {
  for (int i = extent.count; i < lanes; ++i) x[i] = filler;
  return x;
}

// Adding it leaves the nearest integer in the low bits.
constexpr float magic_integer = 0x1.8p23F;

// p 2^n for an integer n, -252 <= n <= 254; `shifted` is n + magic_integer.
INGOT_INLINE Floats scale_by_power(Floats p, [[maybe_unused]] Floats n, [[maybe_unused]] Floats shifted) {
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  // 2^n as two factors, so that the multiplication produces results below 2^-126 and the overflow to infinity.
  const Ints exponent = (Ints)words(shifted) - 0x4b400000;
  const Ints half = exponent >> 1;
  const Floats first = floats((Words)((half + 127) << 23));
  const Floats second = floats((Words)((exponent - half + 127) << 23));
  return p * first * second;
#endif
}

// e^x within 2 ulp; 0 below about -104, infinity above 88.73, NaN for NaN. e^x = 2^n e^r, |r| <= ln(2)/2; the
// polynomial is the minimax one for (e^r - 1 - r) / r^2 in the weight r^2 (error 1e-9, computed by Lawson's iteration).
INGOT_INLINE Floats exp(Floats x) {
  const Floats high = splat(89.0F);
  const Floats low = splat(-105.0F);
  x = x > high ? high : x;
  x = x < low ? low : x;
  const Floats shifted = fma(x, splat(0x1.715476p0F), splat(magic_integer));
  const Floats n = shifted - magic_integer;
  Floats r = fma(n, splat(-0x1.62e4p-1F), x);  // the upper 13 bits of ln 2: the product is exact
  r = fma(n, splat(-0x1.7f7d1cp-20F), r);      // the lower bits of ln 2
  Floats p = splat(0.0001991844765143469F);
  p = fma(p, r, splat(0.001394611899740994F));
  p = fma(p, r, splat(0.008333263918757439F));
  p = fma(p, r, splat(0.041666269302368164F));
  p = fma(p, r, splat(0.1666666716337204F));
  p = fma(p, r, splat(0.5F));
  p = fma(p * r, r, r) + 1.0F;
  return scale_by_power(p, n, shifted);
}

// 2^x within 2 ulp for x <= 127 (above, any number), 1 for 0; 0 below about -150, NaN for NaN. Cheaper than exp: the
// reduction r = x - n is exact. The polynomial is the minimax one for 2^r, |r| <= 1/2, with value 1 at 0, in relative
// error (3e-9, computed by Remez' exchange).
INGOT_INLINE Floats exp2(Floats x) {
  const Floats low = splat(-160.0F);
  x = x < low ? low : x;
#if defined(__AVX512F__)
  const Floats n = (Floats)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Floats shifted{};
#else
  const Floats shifted = x + magic_integer;
  const Floats n = shifted - magic_integer;
#endif
  const Floats r = x - n;
  Floats p = splat(0.00015594678F);
  p = fma(p, r, splat(0.0013406643F));
  p = fma(p, r, splat(0.009617693F));
  p = fma(p, r, splat(0.055503104F));
  p = fma(p, r, splat(0.24022652F));
  p = fma(p, r, splat(0.69314724F));
  p = fma(p, r, splat(1.0F));
  return scale_by_power(p, n, shifted);
}

// 1 / x within 2 ulp for 1 <= x <= 2^125, 0 for infinity, NaN for NaN: on avx512 a 14-bit estimate and one Newton step
// instead of a division.
INGOT_INLINE Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
  const __m512 estimate = _mm512_rcp14_ps((__m512)x);
  const __m512 residual = _mm512_fnmadd_ps((__m512)x, estimate, _mm512_set1_ps(1.0F));
  const __mmask16 finite = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(0x1p126F), _CMP_NGE_UQ);  // the others: 0
  return (Floats)_mm512_maskz_fmadd_ps(finite, estimate, residual, estimate);
#else
  return 1.0F / x;
#endif
}

INGOT_INLINE Floats sigmoid(Floats x) { return reciprocal(1.0F + exp(-x)); }

// tanh within 4 ulp: below 0.625 a polynomial (minimax for (tanh(x) / x - 1) / x^2 in relative error, 4e-9, computed by
// Lawson's iteration), from 0.625 on 1 - 2 / (e^2x + 1).
INGOT_INLINE Floats tanh(Floats x) {
  const Floats magnitude = max(x, -x);
  const Floats large = 1.0F - 2.0F * reciprocal(exp(magnitude + magnitude) + 1.0F);
  const Floats square = x * x;
  Floats p = splat(-0.005704970099031925F);
  p = fma(p, square, splat(0.020639073103666306F));
  p = fma(p, square, splat(-0.05373971164226532F));
  p = fma(p, square, splat(0.13331441581249237F));
  p = fma(p, square, splat(-0.3333328068256378F));
  const Floats small = fma(p * square, x, x);
  return magnitude < 0.625F ? small : floats(words(large) | (words(x) & 0x80000000U));
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
