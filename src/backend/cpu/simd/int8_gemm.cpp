// With AVX-512 VNNI one instruction multiplies 64 unsigned integers of the weight (each plus an offset) with signed
// ones of x and adds groups of four. It starts from a correction that subtracts the offset's part: -offset times the
// sum of the integers of x that are multiplied. Elsewhere the integers are multiplied as they are.
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

// x in the steps of a weight's loop: of two 8-bit blocks or four 4-bit ones, the last of which may be missing. A step
// has the integers, in the order in which the weight's are loaded; 16 corrections; and for each of the 16 sums of
// products the scale of its block.
//
// 8-bit blocks: one vector of 64 integers in order. The first eight sums are the first block's.
struct Q8Weights {
  static constexpr int64_t bytes = q8_block_bytes;
  static constexpr int64_t step_blocks = 2, vectors = 1;
  static constexpr int offset = 128;
  // Where a block's integers i and i + 16 are in a step of x.
  static int64_t place(int64_t block, int64_t half) { return (2 * block + half) * 16; }

  template <int count>
  INGOT_INLINE void load(const unsigned char* from, __m512i (&integers)[1]) {
    const auto block = [&](int64_t b) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + b * bytes + 2));
    };
    __m512i all = _mm512_zextsi256_si512(block(0));
    if constexpr (count > 1) all = _mm512_inserti64x4(all, block(1), 1);
    integers[0] = _mm512_xor_si512(all, _mm512_set1_epi8(-128));
  }
};

// 4-bit blocks: the first vector has elements 0 to 15 of each of the four blocks, which are the lower halves of their
// bytes, the second elements 16 to 31. Both are added to the same sums, of which each block has four.
struct Q4Weights {
  static constexpr int64_t bytes = q4_block_bytes;
  static constexpr int64_t step_blocks = 4, vectors = 2;
  static constexpr int offset = 8;
  static int64_t place(int64_t block, int64_t half) { return (step_blocks * half + block) * 16; }

  template <int count>
  INGOT_INLINE void load(const unsigned char* from, __m512i (&integers)[2]) {
    const auto block = [&](int64_t b) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + b * bytes + 2));
    };
    __m512i all = _mm512_zextsi128_si512(block(0));
    if constexpr (count > 1) all = _mm512_inserti32x4(all, block(1), 1);
    if constexpr (count > 2) all = _mm512_inserti32x4(all, block(2), 2);
    if constexpr (count > 3) all = _mm512_inserti32x4(all, block(3), 3);
    const __m512i low = _mm512_set1_epi8(15);
    integers[0] = _mm512_and_si512(all, low);
    integers[1] = _mm512_and_si512(_mm512_srli_epi16(all, 4), low);
  }
};

template <class Weights>
constexpr int64_t step_bytes = (Weights::vectors + 2) * 64;
// How many of the 16 sums a block has; they are consecutive.
template <class Weights>
constexpr int64_t block_sums = lanes / Weights::step_blocks;
static_assert(step_bytes<Q8Weights> * 2 <= int8_group_bytes && step_bytes<Q4Weights> <= int8_group_bytes);

// The scales of `count` blocks of a weight, each for the sums that its block has, and 0 for the sums of missing blocks.
template <class Weights, int count>
INGOT_MASKED __m512 scales_of(const unsigned char* from) {
  constexpr int64_t bytes = count * Weights::bytes;
  constexpr __mmask64 present = bytes < 64 ? (uint64_t{1} << (bytes % 64)) - 1 : ~uint64_t{0};
  // Each scale is the first 16-bit word of its block. Words of missing blocks are loaded as zeros.
  static_assert((Weights::step_blocks - 1) * Weights::bytes / 2 < 32);
  const auto word = [](int64_t sum) { return static_cast<short>(sum / block_sums<Weights> * (Weights::bytes / 2)); };
  const __m256i words = _mm256_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7),
                                          word(8), word(9), word(10), word(11), word(12), word(13), word(14), word(15));
  const __m512i front = _mm512_maskz_loadu_epi8(present, from);
  const __m512i halves = _mm512_permutexvar_epi16(_mm512_zextsi256_si512(words), front);
  return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
}

template <class T>
INGOT_INLINE void store_rounded(unsigned char* q, const T* x, float inverse) {
  const __m512 scaled = (__m512)(load(x, AllLanes{}) * splat(inverse));
  // to nearest even
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(scaled)));
}

template <class Weights, class T>
void quantize_steps(unsigned char* q, const T* x, int64_t k) {
  constexpr int64_t elements = Weights::step_blocks * block_elements;
  for (int64_t i = 0; i < k; i += elements, q += step_bytes<Weights>) {
    unsigned char* corrections = q + Weights::vectors * 64;
    float scales[lanes] = {};
    for (int64_t v = 0; v < Weights::vectors; ++v) _mm512_storeu_si512(q + v * 64, _mm512_setzero_si512());
    for (int64_t block = 0; block < Weights::step_blocks && i + block * block_elements < k; ++block) {
      const T* from = x + i + block * block_elements;
      const Rounding rounding = rounding_of(largest_magnitude(from));
      store_rounded(q + Weights::place(block, 0), from, rounding.inverse);
      store_rounded(q + Weights::place(block, 1), from + 16, rounding.inverse);
      for (int64_t s = 0; s < block_sums<Weights>; ++s) scales[block * block_sums<Weights> + s] = rounding.scale;
    }
    __m512i sums = _mm512_setzero_si512();
    for (int64_t v = 0; v < Weights::vectors; ++v) {
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_loadu_si512(q + v * 64));
    }
    _mm512_storeu_si512(corrections, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-Weights::offset)));
    _mm512_storeu_ps(corrections + 64, _mm512_loadu_ps(scales));
  }
}

template <class T>
void quantize(unsigned char* q, const T* x, int64_t k, bool four_bits) {
  return four_bits ? quantize_steps<Q4Weights>(q, x, k) : quantize_steps<Q8Weights>(q, x, k);
}

// Step `step`, of which `count` blocks are there, of every row.
template <class Weights, int count, int tokens, int rows>
INGOT_INLINE void add_step(Floats (&sums)[tokens][rows], const unsigned char* x, int64_t x_row, const unsigned char* w,
                           int64_t row_bytes, int64_t step) {
  constexpr int64_t ahead = 3 << 10;  // bytes after the tile that are prefetched
  constexpr int64_t row_step = Weights::step_blocks * Weights::bytes;
  const unsigned char* next = w + rows * row_bytes + ahead + step * rows * row_step;
  INGOT_UNROLL
  for (int64_t i = 0; i < rows * row_step; i += 64) __builtin_prefetch(next + i);
  x += step * step_bytes<Weights>;
  w += step * row_step;
  INGOT_UNROLL
  for (int r = 0; r < rows; ++r) {
    __m512i integers[Weights::vectors];
    Weights::template load<count>(w + r * row_bytes, integers);
    const __m512 scales = scales_of<Weights, count>(w + r * row_bytes);
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) {
      const unsigned char* of_x = x + t * x_row;
      __m512i products = _mm512_loadu_si512(of_x + Weights::vectors * 64);
      INGOT_UNROLL
      for (int64_t v = 0; v < Weights::vectors; ++v) {
        products = _mm512_dpbusd_epi32(products, integers[v], _mm512_loadu_si512(of_x + v * 64));
      }
      const __m512 scale = _mm512_mul_ps(scales, _mm512_loadu_ps(of_x + Weights::vectors * 64 + 64));
      sums[t][r] = (Floats)_mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, (__m512)sums[t][r]);
    }
  }
}

// A tile of tokens x rows.
template <class Weights, int tokens, int rows, class T>
INGOT_NOINLINE void tile(const Outputs<T>& y, const unsigned char* x, const unsigned char* w, int64_t k, int64_t token,
                         int64_t row) {
  const int64_t blocks = k / block_elements, row_bytes = blocks * Weights::bytes;
  const int64_t x_row = int8_row_bytes(k);
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  x += token * x_row;
  w += row * row_bytes;
  const int64_t whole = blocks / Weights::step_blocks;
  for (int64_t step = 0; step < whole; ++step) {
    add_step<Weights, Weights::step_blocks>(sums, x, x_row, w, row_bytes, step);
  }
  switch (blocks % Weights::step_blocks) {
    case 1: add_step<Weights, 1>(sums, x, x_row, w, row_bytes, whole); break;
    case 2: add_step<Weights, 2>(sums, x, x_row, w, row_bytes, whole); break;
    case 3: add_step<Weights, 3>(sums, x, x_row, w, row_bytes, whole); break;
    default: break;
  }
  store_tile(y, sums, token, row);
}

#else

// A block of x: its scale, and its integers in order.
struct BlockOfX {
  float scale;
  int8_t integers[block_elements];
};
constexpr int64_t block_stride = int8_group_bytes / 4;
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
  const int64_t x_row = int8_row_bytes(k);
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
