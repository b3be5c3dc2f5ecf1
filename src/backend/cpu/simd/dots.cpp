// Nothing is packed: both operands lie along k, so every sum is a vector of partial sums over k, in registers, and its
// lanes are added at the end. Rows of the weight come from memory once, for all tokens.
#include "backend/cpu/simd/dots.h"

#include "backend/cpu/simd/blocks.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// What is loaded of a row at once, and how its products with another row's are added to partial sums.
template <class T>
struct Step {
  static constexpr int size = lanes;
  using Vector = Floats;
  template <class Extent>
  static Vector load(const T* p, Extent extent) {
    return INGOT_SIMD_LEVEL::load(p, extent);
  }
  static Floats add(Floats sum, Vector a, Vector b) { return fma(a, b, sum); }
};
#if defined(__AVX512BF16__)
// Products of neighbours are added in one instruction.
template <>
struct Step<Bf16> {
  static constexpr int size = 2 * lanes;
  using Vector = __m512i;
  static Vector load(const Bf16* p, Whole) { return _mm512_loadu_si512(p); }
  static Vector load(const Bf16* p, Part part) { return _mm512_maskz_loadu_epi16((1U << part.count) - 1U, p); }
  static Floats add(Floats sum, Vector a, Vector b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
};
#endif

// Rows of a weight, as a tile reads them.
template <class T>
struct PlainRows {
  static constexpr bool steady = true;  // the processor sees by itself what comes next, if little is done meanwhile
  const T* data;
  int64_t k;

  PlainRows from(int64_t row) const { return {data + row * k, k}; }
  int64_t bytes_of_row() const { return k * static_cast<int64_t>(sizeof(T)); }
  void ask(int64_t row, int64_t i) const { __builtin_prefetch(data + row * k + i); }
  template <class Extent>
  typename Step<T>::Vector load(int64_t row, int64_t i, Extent extent) const {
    return Step<T>::load(data + row * k + i, extent);
  }
};
#if defined(__AVX512BF16__)
// Blocks, decoded to bf16 on the way: as decoding whole rows does.
template <class Block>
struct BlockRows {
  static constexpr bool steady = false;
  const unsigned char* data;
  int64_t row_bytes;

  BlockRows from(int64_t row) const { return {data + row * row_bytes, row_bytes}; }
  int64_t bytes_of_row() const { return row_bytes; }
  const unsigned char* block(int64_t row, int64_t i) const {
    return data + row * row_bytes + i / block_elements * Block::bytes;
  }
  void ask(int64_t row, int64_t i) const { __builtin_prefetch(block(row, i)); }
  template <class Extent>
  __m512i load(int64_t row, int64_t i, Extent) const {
    return Block::load(block(row, i));
  }
};
#endif

// One step at element i. `ahead`: what lies `next` rows further is asked of the memory meanwhile.
template <class T, int tokens, int rows, bool ahead, class Rows, class Extent>
INGOT_INLINE void add_step(Floats (&sums)[tokens][rows], const T* x, const Rows& w, int64_t k, int64_t next, int64_t i,
                           Extent extent) {
  using S = Step<T>;
  typename S::Vector left[tokens];
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) left[t] = S::load(x + t * k + i, extent);
  INGOT_UNROLL
  for (int r = 0; r < rows; ++r) {
    const typename S::Vector right = w.load(r, i, extent);
    if constexpr (ahead) w.ask(r + next, i);
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) sums[t][r] = S::add(sums[t][r], left[t], right);
  }
}

// The sums of the lanes of four vectors, each in the same order, as the first four lanes.
INGOT_INLINE Floats sum_four(Floats a, Floats b, Floats c, Floats d) {
#if defined(__AVX512F__)
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512 quarters = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  const __m512 halves = _mm512_add_ps(quarters, _mm512_shuffle_f32x4(quarters, quarters, 0b01'00'11'10));
  return (Floats)_mm512_add_ps(halves, _mm512_shuffle_f32x4(halves, halves, 0b10'11'00'01));
#else
  Floats sums{};
  sums[0] = sum(a);
  sums[1] = sum(b);
  sums[2] = sum(c);
  sums[3] = sum(d);
  return sums;
#endif
}

template <class T>
struct Outputs {
  float* y_float;  // or null: y_own
  T* y_own;
  int64_t y_row;
  bool accumulate;
};

template <class T, class Extent>
INGOT_INLINE void put(const Outputs<T>& y, int64_t token, int64_t row, Floats sums, Extent extent) {
  const int64_t at = token * y.y_row + row;
  if (y.y_float != nullptr) {
    store(y.y_float + at, y.accumulate ? load(y.y_float + at, extent) + sums : sums, extent);
  } else {
    store(y.y_own + at, y.accumulate ? load(y.y_own + at, extent) + sums : sums, extent);
  }
}

// A tile of tokens x rows, the first of them `token` and `row`; one row, or a multiple of four.
template <class T, int tokens, int rows, bool ahead, class Rows>
void tile(const Outputs<T>& y, const T* x, const Rows& weight, int64_t k, int64_t token, int64_t row) {
  constexpr int size = Step<T>::size;
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  x += token * k;
  const Rows w = weight.from(row);
  // Whole tiles further, and so far that memory has the time that it takes.
  constexpr int64_t distance = 8 << 10;
  const int64_t next = rows * (1 + distance / (rows * w.bytes_of_row() + 1));
  int64_t i = 0;
  for (; i + size <= k; i += size) add_step<T, tokens, rows, ahead>(sums, x, w, k, next, i, Whole{});
  if (i < k) add_step<T, tokens, rows, ahead>(sums, x, w, k, next, i, Part{static_cast<int>(k - i)});
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) {
    if constexpr (rows == 1) {
      put(y, token + t, row, sum_four(sums[t][0], Floats{}, Floats{}, Floats{}), Part{1});
    } else {
      INGOT_UNROLL
      for (int r = 0; r < rows; r += 4) {
        const Floats four = sum_four(sums[t][r], sums[t][r + 1], sums[t][r + 2], sums[t][r + 3]);
        if constexpr (lanes == 4) {
          put(y, token + t, row + r, four, Whole{});
        } else {
          put(y, token + t, row + r, four, Part{4});
        }
      }
    }
  }
}

#if defined(__AVX512F__)
constexpr int most_tokens = 6;  // of a tile of four rows: 24 sums, 6 of x, 1 of w, of 32 registers
#elif defined(__aarch64__)
constexpr int most_tokens = 5;
#else
constexpr int most_tokens = 2;  // 8 sums, 2 of x, 1 of w, of 16
#endif

// A tile of `count` tokens, at most `most`.
template <class T, int most, int rows, class Rows>
void few_tokens(const Outputs<T>& y, const T* x, const Rows& w, int64_t k, int64_t token, int64_t row, int64_t count) {
  constexpr bool ahead = most > 2 || !Rows::steady;
  if (count == most) return tile<T, most, rows, ahead>(y, x, w, k, token, row);
  if constexpr (most > 1) few_tokens<T, most - 1, rows>(y, x, w, k, token, row, count);
}

// Tokens first .. end - 1 against `rows` rows from `row` on.
template <class T, int rows, class Rows>
void tiles(const Outputs<T>& y, const T* x, const Rows& w, int64_t k, int64_t first, int64_t end, int64_t row) {
  int64_t token = first;
  if (token + most_tokens <= end) {
    tile<T, most_tokens, rows, true>(y, x, w, k, token, row);
    for (token += most_tokens; token + most_tokens <= end; token += most_tokens) {
      tile<T, most_tokens, rows, false>(y, x, w, k, token, row);
    }
  }
  few_tokens<T, most_tokens - 1, rows>(y, x, w, k, token, row, end - token);
}

template <class T, class Rows>
void all_tiles(const Outputs<T>& y, const T* x, const Rows& w, int64_t tokens, int64_t rows, int64_t k) {
  // Tokens that stay in the first cache while rows pass, and rows that stay in the second while these tokens change.
  constexpr int64_t near = 30 << 10, far = 384 << 10;
  const int64_t row_bytes = (k > 0 ? k : 1) * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = near / row_bytes / most_tokens * most_tokens;
  const int64_t group = fitting > most_tokens ? fitting : most_tokens;
  const int64_t span = far / row_bytes / 8 * 8 + 8;
  for (int64_t begin = 0; begin < rows; begin += span) {
    const int64_t last = begin + span < rows ? begin + span : rows;
    for (int64_t first = 0; first < tokens; first += group) {
      const int64_t end = first + group < tokens ? first + group : tokens;
      int64_t row = begin;
      // Of few tokens more rows at once, so that enough sums are under way.
      if (end - first <= most_tokens / 2) {
        for (; row + 8 <= last; row += 8) few_tokens<T, most_tokens / 2, 8>(y, x, w, k, first, row, end - first);
      }
      for (; row + 4 <= last; row += 4) tiles<T, 4>(y, x, w, k, first, end, row);
      for (; row < last; ++row) tiles<T, 1>(y, x, w, k, first, end, row);
    }
  }
}

template <class T>
void dots(float* y_float, T* y_own, int64_t y_row, const T* x, const T* w, int64_t tokens, int64_t rows, int64_t k,
          bool accumulate) {
  all_tiles(Outputs<T>{y_float, y_own, y_row, accumulate}, x, PlainRows<T>{w, k}, tokens, rows, k);
}

#if defined(__AVX512BF16__)
template <class Block>
void block_dots(float* y_float, Bf16* y_own, int64_t y_row, const Bf16* x, const void* w, int64_t tokens, int64_t rows,
                int64_t k, bool accumulate) {
  const BlockRows<Block> blocks{static_cast<const unsigned char*>(w), k / block_elements * Block::bytes};
  all_tiles(Outputs<Bf16>{y_float, y_own, y_row, accumulate}, x, blocks, tokens, rows, k);
}
constexpr BlockDots* q8_dots = block_dots<Q8Block>;
constexpr BlockDots* q4_dots = block_dots<Q4Block>;
#else
constexpr BlockDots* q8_dots = nullptr;
constexpr BlockDots* q4_dots = nullptr;
#endif

}  // namespace

const DotKernels dot_kernels = {{dots<float>, dots<Bf16>, dots<F16>}, q8_dots, q4_dots, most_tokens};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
