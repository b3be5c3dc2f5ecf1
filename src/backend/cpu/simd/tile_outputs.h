// How gemms whose sums are vectors store a tile: lanes are added, and rows of y rounded or added to. Included by
// simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

// Four consecutive elements of a row of y.
#if defined(__AVX512BF16__)
using Four = __m128;
INGOT_INLINE Four load_four(const float* p) { return _mm_loadu_ps(p); }
INGOT_INLINE Four load_four(const Bf16* p) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}
INGOT_INLINE Four load_four(const F16* p) { return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
INGOT_INLINE void store_four(float* p, Four x) { _mm_storeu_ps(p, x); }
INGOT_INLINE void store_four(Bf16* p, Four x) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), (__m128i)_mm_cvtneps_pbh(x));
}
INGOT_INLINE void store_four(F16* p, Four x) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

// The sums of the lanes of vectors are added in one order: 0 to 3 of each quarter, then quarters 0 + 2 and 1 + 3, then
// both. Here those of each quarter of four vectors.
INGOT_INLINE __m512 sum_quarters(Floats a, Floats b, Floats c, Floats d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  return _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
}
INGOT_INLINE Four sum_four(Floats a, Floats b, Floats c, Floats d) {
  const __m512 quarters = sum_quarters(a, b, c, d);
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}
// Of 16 vectors, four of each of a, b, c and d, in as many quarters of the result.
INGOT_INLINE __m512 sum_sixteen(const Floats* a, const Floats* b, const Floats* c, const Floats* d) {
  const auto halves = [](const Floats* one, const Floats* other) {
    const __m512 first = sum_quarters(one[0], one[1], one[2], one[3]);
    const __m512 second = sum_quarters(other[0], other[1], other[2], other[3]);
    return _mm512_add_ps(_mm512_shuffle_f32x4(first, second, 0x44), _mm512_shuffle_f32x4(first, second, 0xee));
  };
  const __m512 ab = halves(a, b), cd = halves(c, d);
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
#else
using Four = Floats;  // in the first four lanes
constexpr auto four = [] {
  if constexpr (lanes == 4) {
    return AllLanes{};
  } else {
    return FirstLanes{4};
  }
}();
template <class T>
INGOT_INLINE Four load_four(const T* p) {
  return load(p, four);
}
template <class T>
INGOT_INLINE void store_four(T* p, Four x) {
  store_computed(p, x, four);
}
INGOT_INLINE Four sum_four(Floats a, Floats b, Floats c, Floats d) {
  Floats sums{};
  sums[0] = reduce_add(a);
  sums[1] = reduce_add(b);
  sums[2] = reduce_add(c);
  sums[3] = reduce_add(d);
  return sums;
}
#endif

// The result y: row t begins at t * y_row.
template <class T>
struct Outputs {
  float* y_float;  // if null: y_typed
  T* y_typed;
  int64_t y_row;
  bool accumulate;
};

// Calls to(address) for the element of y, whichever type it has.
template <class T, class To>
INGOT_INLINE void at_output(const Outputs<T>& y, int64_t token, int64_t row, To to) {
  const int64_t at = token * y.y_row + row;
  if (y.y_float != nullptr) {
    to(y.y_float + at);
  } else {
    to(y.y_typed + at);
  }
}

// Stores the sum of one row of the weight, or of four consecutive ones, the first of which is `row`, or adds it to y.
template <class T>
INGOT_INLINE void store_one(const Outputs<T>& y, int64_t token, int64_t row, float sum) {
  at_output(y, token, row, [&](auto* p) {
    const Floats one = splat(sum);
    store_computed(p, y.accumulate ? load(p, FirstLanes{1}) + one : one, FirstLanes{1});
  });
}
template <class T>
INGOT_INLINE void store_sums(const Outputs<T>& y, int64_t token, int64_t row, Four sums) {
  at_output(y, token, row, [&](auto* p) { store_four(p, y.accumulate ? load_four(p) + sums : sums); });
}

// Stores the sums of a tile of tokens x rows, starting at `token` and `row`; one row, or a multiple of four.
template <class T, int tokens, int rows>
INGOT_INLINE void store_tile(const Outputs<T>& y, const Floats (&sums)[tokens][rows], int64_t token, int64_t row) {
  int t = 0;
#if defined(__AVX512BF16__)
  if constexpr (rows == 4) {
    INGOT_UNROLL
    for (; t + 4 <= tokens; t += 4) {
      const __m512 all = sum_sixteen(sums[t], sums[t + 1], sums[t + 2], sums[t + 3]);
      store_sums(y, token + t, row, _mm512_castps512_ps128(all));
      store_sums(y, token + t + 1, row, _mm512_extractf32x4_ps(all, 1));
      store_sums(y, token + t + 2, row, _mm512_extractf32x4_ps(all, 2));
      store_sums(y, token + t + 3, row, _mm512_extractf32x4_ps(all, 3));
    }
  }
#endif
  INGOT_UNROLL
  for (; t < tokens; ++t) {
    if constexpr (rows == 1) {
      store_one(y, token + t, row, sum_four(sums[t][0], Floats{}, Floats{}, Floats{})[0]);
    } else {
      INGOT_UNROLL
      for (int r = 0; r < rows; r += 4) {
        store_sums(y, token + t, row + r, sum_four(sums[t][r], sums[t][r + 1], sums[t][r + 2], sums[t][r + 3]));
      }
    }
  }
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
