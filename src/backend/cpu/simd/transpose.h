// Transposition in registers. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

#if defined(INGOT_SIMD_avx512)
namespace ingot::cpu::INGOT_SIMD_LEVEL {

// Transposes 16 rows of 16 words.
INGOT_INLINE void transpose16(__m512 (&r)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 a = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x88), b = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0x88);
    const __m512 e = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0xdd);
    t[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    t[j + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    t[j + 4] = _mm512_shuffle_f32x4(b, e, 0x88);
    t[j + 12] = _mm512_shuffle_f32x4(b, e, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
#endif
