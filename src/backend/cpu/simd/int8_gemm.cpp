// With AVX-512 VNNI one instruction multiplies 64 unsigned integers of the weight (each plus an offset) with signed
// ones of x and adds groups of four. It starts from a correction that subtracts the offset's part: -offset times the
// sum of the group's integers of x. Elsewhere the integers are multiplied as they are.
#include "backend/cpu/simd/int8_gemm.h"

#include "backend/cpu/simd/blocks.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/tile_outputs.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// How a block of x is rounded: to x * inverse, in units of `scale`.
struct Rounding {
  float scale, inverse;
};
INGOT_INLINE Rounding rounding_of(float largest) {
  constexpr float smallest = 0x1p-121F;  // below it 127 / largest may be infinite
  if (largest < smallest) return {0, 0};
  return {largest / 127.0F, 127.0F / largest};  // NaN stays NaN
}

// The largest magnitude of a block; infinite or NaN if one of its block_elements is.
template <class T>
INGOT_INLINE float largest_magnitude(const T* x) {
  Words most{};
  INGOT_UNROLL
  for (int i = 0; i < block_elements; i += lanes) {
    const Words magnitude = words(load(x + i, AllLanes{})) & 0x7fffffffU;
    most = magnitude > most ? magnitude : most;  // NaN is above infinity
  }
  uint32_t bits = 0;
  for (int lane = 0; lane < lanes; ++lane) bits = most[lane] > bits ? most[lane] : bits;
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  return largest;
}

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

// Two blocks of x: 64 integers, 16 corrections, and for each of the 16 sums of four products the scale of its block.
// The integers of 8-bit blocks are in order; 4-bit blocks A and B are in the order A[0..16), B[0..16), A[16..32),
// B[16..32), in which their bytes hold them.
struct PairOfX {
  const unsigned char* at;
  __m512i integers() const { return _mm512_loadu_si512(at); }
  __m512i corrections() const { return _mm512_loadu_si512(at + 64); }
  __m512 scales() const { return _mm512_loadu_ps(at + 128); }
};
constexpr __mmask16 second_of_q8 = 0xff00, second_of_q4 = 0xf0f0;  // which sums are the second block's

template <class T>
INGOT_INLINE __m128i rounded(const T* x, float inverse) {
  const __m512 scaled = (__m512)(load(x, AllLanes{}) * splat(inverse));
  return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(scaled));  // to nearest even
}

template <class T>
void quantize(unsigned char* q, const T* x, int64_t k, bool four_bits) {
  const __mmask16 second = four_bits ? second_of_q4 : second_of_q8;
  const __m512i offset = _mm512_set1_epi32(four_bits ? -8 : -128);
  for (int64_t i = 0; i < k; i += 2 * block_elements, q += int8_pair_bytes) {
    __m128i parts[4] = {};
    float scales[2] = {};
    for (int block = 0; block < 2 && i + block * block_elements < k; ++block) {
      const T* from = x + i + block * block_elements;
      const Rounding rounding = rounding_of(largest_magnitude(from));
      scales[block] = rounding.scale;
      const int first = four_bits ? block : 2 * block, step = four_bits ? 2 : 1;
      parts[first] = rounded(from, rounding.inverse);
      parts[first + step] = rounded(from + 16, rounding.inverse);
    }
    __m512i integers = _mm512_castsi128_si512(parts[0]);
    integers = _mm512_inserti32x4(integers, parts[1], 1);
    integers = _mm512_inserti32x4(integers, parts[2], 2);
    integers = _mm512_inserti32x4(integers, parts[3], 3);
    const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), integers);
    _mm512_storeu_si512(q, integers);
    _mm512_storeu_si512(q + 64, _mm512_mullo_epi32(sums, offset));
    _mm512_storeu_ps(q + 128, _mm512_mask_blend_ps(second, _mm512_set1_ps(scales[0]), _mm512_set1_ps(scales[1])));
  }
}

// Two blocks of a weight from `from` on, or one and zeros, as unsigned integers.
struct Q8Weights {
  static constexpr int64_t bytes = q8_block_bytes;
  static constexpr __mmask16 second = second_of_q8;
  INGOT_INLINE __m256i one(const unsigned char* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2));
  }
  INGOT_INLINE __m512i signs(__m512i integers) { return _mm512_xor_si512(integers, _mm512_set1_epi8(-128)); }
  INGOT_INLINE __m512i first_of(const unsigned char* from) { return signs(_mm512_zextsi256_si512(one(from))); }
  INGOT_INLINE __m512i both(const unsigned char* from) {
    return signs(_mm512_inserti64x4(_mm512_castsi256_si512(one(from)), one(from + bytes), 1));
  }
};
struct Q4Weights {
  static constexpr int64_t bytes = q4_block_bytes;
  static constexpr __mmask16 second = second_of_q4;
  INGOT_INLINE __m128i one(const unsigned char* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2));
  }
  INGOT_INLINE __m512i halves(__m256i pairs) {
    const __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(pairs), _mm256_srli_epi16(pairs, 4), 1);
    return _mm512_and_si512(all, _mm512_set1_epi8(15));
  }
  INGOT_INLINE __m512i first_of(const unsigned char* from) { return halves(_mm256_zextsi128_si256(one(from))); }
  INGOT_INLINE __m512i both(const unsigned char* from) {
    return halves(_mm256_inserti128_si256(_mm256_castsi128_si256(one(from)), one(from + bytes), 1));
  }
};

template <class Weights, int tokens, int rows>
INGOT_INLINE void add_pair(Floats (&sums)[tokens][rows], const unsigned char* x, int64_t x_row, int row,
                           __m512i weights, __m512 scales) {
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) {
    const PairOfX pair{x + t * x_row};
    const __m512i products = _mm512_dpbusd_epi32(pair.corrections(), weights, pair.integers());
    const __m512 scale = _mm512_mul_ps(scales, pair.scales());
    sums[t][row] = (Floats)_mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, (__m512)sums[t][row]);
  }
}

// The blocks first + b and, if `both`, the one after it, of every row; `scales` are those of the blocks from `first`
// on.
template <class Weights, bool both, int tokens, int rows, int64_t converted>
INGOT_INLINE void add_pairs(Floats (&sums)[tokens][rows], const unsigned char* x, int64_t x_row, const unsigned char* w,
                            int64_t row_bytes, const float (&scales)[rows][converted], int64_t first, int64_t b) {
  constexpr int64_t ahead = 1024;  // bytes after the tile that are prefetched
  const unsigned char* next = w + rows * row_bytes + ahead + (first + b) * rows * Weights::bytes;
  INGOT_UNROLL
  for (int64_t i = 0; i < 2 * rows * Weights::bytes; i += 64) __builtin_prefetch(next + i);
  x += (first + b) / 2 * int8_pair_bytes;
  w += (first + b) * Weights::bytes;
  INGOT_UNROLL
  for (int r = 0; r < rows; ++r) {
    const __m512 of_first = _mm512_set1_ps(scales[r][b]);
    if constexpr (both) {
      const __m512 of_both = _mm512_mask_blend_ps(Weights::second, of_first, _mm512_set1_ps(scales[r][b + 1]));
      add_pair<Weights>(sums, x, x_row, r, Weights::both(w + r * row_bytes), of_both);
    } else {  // the scales of the missing block of x are 0
      add_pair<Weights>(sums, x, x_row, r, Weights::first_of(w + r * row_bytes), of_first);
    }
  }
}

// A tile of tokens x rows. Scales of the weight are converted before their blocks, one instruction each, and broadcast
// when loaded.
template <class Weights, int tokens, int rows, class T>
INGOT_NOINLINE void tile(const Outputs<T>& y, const unsigned char* x, const unsigned char* w, int64_t k, int64_t token,
                         int64_t row) {
  constexpr int64_t converted = 64;  // scales of a row, an even number
  const int64_t blocks = k / block_elements, row_bytes = blocks * Weights::bytes;
  const int64_t x_row = (blocks + 1) / 2 * int8_pair_bytes;
  float scales[rows][converted];
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  x += token * x_row;
  w += row * row_bytes;
  for (int64_t first = 0; first < blocks; first += converted) {
    const int64_t count = blocks - first < converted ? blocks - first : converted;
    for (int r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < count; ++b) scales[r][b] = one_scale(w + r * row_bytes + (first + b) * Weights::bytes);
    }
    int64_t b = 0;
    for (; b + 2 <= count; b += 2) add_pairs<Weights, true>(sums, x, x_row, w, row_bytes, scales, first, b);
    if (b < count) add_pairs<Weights, false>(sums, x, x_row, w, row_bytes, scales, first, b);
  }
  store_tile(y, sums, token, row);
}

#else

// A block of x: its scale, and its integers in order.
struct BlockOfX {
  float scale;
  int8_t integers[block_elements];
};
constexpr int64_t block_stride = int8_pair_bytes / 2;
static_assert(sizeof(BlockOfX) <= block_stride);

template <class T>
void quantize(unsigned char* q, const T* x, int64_t k, bool) {
  for (int64_t i = 0; i < k; i += block_elements, q += block_stride) {
    BlockOfX block;
    const Rounding rounding = rounding_of(largest_magnitude(x + i));
    block.scale = rounding.scale;
    for (int j = 0; j < block_elements; j += lanes) {
      const Floats scaled = load(x + i + j, AllLanes{}) * splat(rounding.inverse);
      // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even. What is not finite is of no importance: the
      // scale is not finite either.
      const Floats shifted = scaled + splat(0x1.8p23F);
      const Ints integers = (Ints)(words(shifted) - words(splat(0x1.8p23F)));
      for (int lane = 0; lane < lanes; ++lane) block.integers[j + lane] = static_cast<int8_t>(integers[lane]);
    }
    __builtin_memcpy(q, &block, sizeof block);
  }
}

struct Q8Weights {
  static constexpr int64_t bytes = q8_block_bytes;
  INGOT_INLINE void decode(const unsigned char* from, int8_t* integers) {
    __builtin_memcpy(integers, from + 2, block_elements);
  }
};
struct Q4Weights {
  static constexpr int64_t bytes = q4_block_bytes;
  INGOT_INLINE void decode(const unsigned char* from, int8_t* integers) {
    for (int j = 0; j < 16; ++j) {
      integers[j] = static_cast<int8_t>((from[2 + j] & 15) - 8);
      integers[16 + j] = static_cast<int8_t>((from[2 + j] >> 4) - 8);
    }
  }
};

template <class Weights, int tokens, int rows, class T>
INGOT_NOINLINE void tile(const Outputs<T>& y, const unsigned char* x, const unsigned char* w, int64_t k, int64_t token,
                         int64_t row) {
  const int64_t blocks = k / block_elements, row_bytes = blocks * Weights::bytes;
  const int64_t x_row = (blocks + 1) / 2 * int8_pair_bytes;
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  for (int r = 0; r < rows; ++r) {
    float totals[tokens] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const unsigned char* from = w + (row + r) * row_bytes + b * Weights::bytes;
      int8_t weights[block_elements];
      Weights::decode(from, weights);
      Halves half{};
      __builtin_memcpy(&half, from, 2);
      const float scale = from_f16(half)[0];
      for (int t = 0; t < tokens; ++t) {
        BlockOfX block;
        __builtin_memcpy(&block, x + (token + t) * x_row + b * block_stride, sizeof block);
        int32_t sum = 0;
        for (int j = 0; j < block_elements; ++j) sum += weights[j] * block.integers[j];
        totals[t] += static_cast<float>(sum) * (scale * block.scale);
      }
    }
    for (int t = 0; t < tokens; ++t) sums[t][r][0] = totals[t];
  }
  store_tile(y, sums, token, row);
}

#endif

constexpr int max_tokens = 4;  // of a tile

// Tokens [token, end) in tiles of at most `limit`.
template <class Weights, int limit, int rows, class T>
void tokens_of_rows(const Outputs<T>& y, const unsigned char* x, const unsigned char* w, int64_t k, int64_t token,
                    int64_t end, int64_t row) {
  for (; token + limit <= end; token += limit) tile<Weights, limit, rows>(y, x, w, k, token, row);
  if constexpr (limit > 1) {
    if (token < end) tokens_of_rows<Weights, limit - 1, rows>(y, x, w, k, token, end, row);
  }
}

template <class Weights, class T>
void int8_gemm(float* y_float, T* y_typed, int64_t y_row, const unsigned char* x, const void* w, int64_t tokens,
               int64_t rows, int64_t k, bool accumulate) {
  // Bytes of a group of tokens, which stays in L1 while rows are streamed, and of a span of rows, which stays in L2
  // while all groups of tokens are multiplied with it.
  constexpr int64_t l1_bytes = 24 << 10, l2_bytes = 256 << 10;
  const Outputs<T> y{y_float, y_typed, y_row, accumulate};
  const auto* weight = static_cast<const unsigned char*>(w);
  const int64_t fitting = l1_bytes / (3 * k + 1) / max_tokens * max_tokens;
  const int64_t group = fitting > max_tokens ? fitting : max_tokens;
  const int64_t span = l2_bytes / (k / block_elements * Weights::bytes + 1) / 8 * 8 + 8;
  for (int64_t begin = 0; begin < rows; begin += span) {
    const int64_t last = begin + span < rows ? begin + span : rows;
    for (int64_t first = 0; first < tokens; first += group) {
      const int64_t end = first + group < tokens ? first + group : tokens;
      int64_t row = begin;
      for (; row + 4 <= last; row += 4) tokens_of_rows<Weights, max_tokens, 4>(y, x, weight, k, first, end, row);
      for (; row < last; ++row) tokens_of_rows<Weights, max_tokens, 1>(y, x, weight, k, first, end, row);
    }
  }
}

}  // namespace

const Int8GemmKernels int8_gemm_kernels = {
    {quantize<float>, quantize<Bf16>, quantize<F16>},
    {int8_gemm<Q8Weights, float>, int8_gemm<Q8Weights, Bf16>, int8_gemm<Q8Weights, F16>},
    {int8_gemm<Q4Weights, float>, int8_gemm<Q4Weights, Bf16>, int8_gemm<Q4Weights, F16>}};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
