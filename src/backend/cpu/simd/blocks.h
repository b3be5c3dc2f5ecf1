// Decoding of blocks of 32 quantised elements (an f16 scale, then integers) to bf16. Rounded once, so the result equals
// decoding to f32 and rounding. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

#if defined(__AVX512BF16__)
namespace ingot::cpu::INGOT_SIMD_LEVEL {

constexpr int64_t block_elements = 32;

INGOT_INLINE Floats block_scale(const unsigned char* from) {
  int16_t scale;
  __builtin_memcpy(&scale, from, sizeof scale);
  return (Floats)_mm512_cvtph_ps(_mm256_set1_epi16(scale));
}

// Blocks of 8-bit integers.
struct Q8Block {
  static constexpr int64_t bytes = 34;
  INGOT_INLINE __m512i load(const unsigned char* from) {
    typedef signed char Integers __attribute__((vector_size(lanes)));
    const Floats factor = block_scale(from);
    const auto decode16 = [&](const unsigned char* from16) {
      Integers integers;
      __builtin_memcpy(&integers, from16, sizeof integers);
      return (__m512)(factor * __builtin_convertvector(integers, Floats));
    };
    return (__m512i)_mm512_cvtne2ps_pbh(decode16(from + 18), decode16(from + 2));
  }
};

// Blocks of 4-bit integers from -8 to 7: element j is the low half of byte j, element 16 + j its high half.
struct Q4Block {
  static constexpr int64_t bytes = 18;
  INGOT_INLINE __m512i load(const unsigned char* from) {
    const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2)));
    // The values of the sixteen integers; the permutation selects one by the low four bits.
    const Floats values = block_scale(from) * Floats{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const auto decode16 = [&](__m512i nibbles) { return _mm512_permutexvar_ps(nibbles, (__m512)values); };
    return (__m512i)_mm512_cvtne2ps_pbh(decode16(_mm512_srli_epi32(pairs, 4)), decode16(pairs));
  }
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
#endif
