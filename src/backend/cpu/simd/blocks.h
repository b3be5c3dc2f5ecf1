// Blocks of 32 quantised elements: an f16 scale, then 8-bit or 4-bit integers. With AVX-512 they are decoded to bf16,
// rounded once, so the result equals decoding to f32 and rounding. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

constexpr int64_t block_elements = 32;
constexpr int64_t q8_block_bytes = 2 + block_elements, q4_block_bytes = 2 + block_elements / 2;

#if defined(__AVX512BF16__)
// The scale of the block at `from`: in the first lane, once, and in every lane. Blocks have more than eight bytes.
INGOT_INLINE __m128 first_lane_scale(const unsigned char* from) {
  return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
INGOT_INLINE float one_scale(const unsigned char* from) { return _mm_cvtss_f32(first_lane_scale(from)); }
// One number is converted, then broadcast: the conversion of a whole vector takes longer.
INGOT_INLINE Floats block_scale(const unsigned char* from) {
  return (Floats)_mm512_broadcastss_ps(first_lane_scale(from));
}

// Blocks of 8-bit integers.
struct Q8Block {
  static constexpr int64_t bytes = q8_block_bytes;
  INGOT_INLINE __m512i decode(const unsigned char* from) {
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

// Blocks of 4-bit integers from -8 to 7: element j is the low half of byte j, element 16 + j its high half. The
// integers select from a table of the sixteen values that they can have, so that few values are rounded.
struct Q4Block {
  static constexpr int64_t bytes = q4_block_bytes;
  INGOT_INLINE __m512 values(Floats scale) {
    return (__m512)(scale * Floats{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});
  }
  // The 32 integers, each plus 8, in 16-bit words, whose bits above the fourth are undefined.
  INGOT_INLINE __m512i integers(const unsigned char* from) {
    const __m256i pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2)));
    return _mm512_inserti64x4(_mm512_castsi256_si512(pairs), _mm256_srli_epi16(pairs, 4), 1);
  }
  INGOT_INLINE __m512i decode(const unsigned char* from) { return decode(from, block_scale(from)); }
  INGOT_INLINE __m512i decode(const unsigned char* from, Floats scale) {
    const __m512i table = _mm512_zextsi256_si512((__m256i)_mm512_cvtneps_pbh(values(scale)));
    return _mm512_permutexvar_epi16(_mm512_and_si512(integers(from), _mm512_set1_epi16(15)), table);
  }
  // The block at `from` and the one after it, whose values are the second half of one table.
  INGOT_INLINE void decode_two(const unsigned char* from, Floats scale, Floats scale_after, __m512i (&blocks)[2]) {
    const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(values(scale_after), values(scale));
    const __m512i low = _mm512_set1_epi16(15), second = _mm512_set1_epi16(16);
    const __m512i low_and_second = _mm512_ternarylogic_epi32(integers(from + bytes), low, second, 0xea);  // a & b | c
    blocks[0] = _mm512_permutexvar_epi16(_mm512_and_si512(integers(from), low), table);
    blocks[1] = _mm512_permutexvar_epi16(low_and_second, table);
  }
};

// The values of a block of 4-bit integers by the ten bits of its scale's mantissa: row m has (1 + m / 1024) v for v
// from -8 to 7, rounded to bf16. Scaled by the power of two of the scale they are what Q4Block decodes, since no value
// is subnormal in bf16.
struct Q4Values {
  static constexpr int mantissas = 1024;
  alignas(64) float row[mantissas][lanes];

  constexpr Q4Values() : row{} {
    for (int m = 0; m < mantissas; ++m) {
      for (int v = 0; v < lanes; ++v) {
        const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>((mantissas + m) * (v - 8)));
        const uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
        row[m][v] = __builtin_bit_cast(float, rounded) * 0x1p-10F;
      }
    }
  }
};
constexpr Q4Values q4_values;

// A block of 4-bit integers as fp32: lane 4 g + j of `first` and `second` has the first and the second element of pair
// 2 j + {0, 1, 8, 9}[g], so that one shift of the block's four words, repeated, brings the integers to the low bits.
struct Q4Pairs {
  Floats first, second;

  // `power`: the scale's sign and power of two; `values`: of its mantissa.
  INGOT_INLINE Q4Pairs decode(const unsigned char* from, const float* values, float power) {
    const __m512i integers = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2)));
    const __m512 table = (__m512)(load(values, AllLanes{}) * splat(power));
    // The permutation reads the low four bits of its indices.
    const auto select = [&](Words shift) {
      return (Floats)_mm512_permutexvar_ps(_mm512_srlv_epi32(integers, (__m512i)shift), table);
    };
    return {select(Words{0, 0, 0, 0, 16, 16, 16, 16, 4, 4, 4, 4, 20, 20, 20, 20}),
            select(Words{8, 8, 8, 8, 24, 24, 24, 24, 12, 12, 12, 12, 28, 28, 28, 28})};
  }
  // 32 elements as pairs in this order of lanes, and sums of products of these in the order of pairs.
  INGOT_INLINE Words order(__m512i pairs) {
    const Words source{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    return (Words)_mm512_permutexvar_epi32((__m512i)source, pairs);
  }
  INGOT_INLINE Floats reorder(Floats sums) {
    const Words source{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
    return (Floats)_mm512_permutexvar_ps((__m512i)source, (__m512)sums);
  }
};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
