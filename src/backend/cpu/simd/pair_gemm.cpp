// Words are pairs of bf16, neighbours along k. A register tile holds the sums of some rows and of one to four vectors
// of columns over all of k: for each pair, vectors of words of b, and a word of a for every row, told to all lanes.
#include "backend/cpu/simd/pair_gemm.h"

#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(__AVX512BF16__)
namespace {

// 24 sums, up to 4 of b and 1 of a, of 32 registers.
constexpr int sums_at_once = 24;
constexpr int most_vectors = pair_gemm_panel / lanes;

// Words of two lines that lie across k, at p and p + 1; `second` is null behind the last element.
template <class Extent>
INGOT_INLINE void interleave(uint32_t* packed, const Bf16* first, const Bf16* second, Extent extent) {
  Words words = __builtin_convertvector(load_halves(first, extent), Words);
  if (second != nullptr) words |= __builtin_convertvector(load_halves(second, extent), Words) << 16;
  __builtin_memcpy(packed, &words, sizeof words);
}

INGOT_INLINE __m512 load_words(const Bf16* p, int64_t count) {
  const __mmask32 present = count < 32 ? (__mmask32)((1U << count) - 1U) : ~(__mmask32)0;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(present, p));
}

int64_t rounded_up(int64_t count) { return (count + lanes - 1) / lanes * lanes; }

// `count` lines of k elements in panels of `panel` lines, a multiple of the lanes: of each, words [pairs, its lines,
// rounded up]. Either step is 1.
void pack_lines(uint32_t* packed, const Bf16* lines, int64_t line_step, int64_t k_step, int64_t count, int64_t panel,
                int64_t k) {
  const int64_t pairs = (k + 1) / 2;
  const auto width_at = [&](int64_t first) {
    const int64_t begin = first / panel * panel;
    return count - begin < panel ? rounded_up(count - begin) : panel;
  };
  const auto place = [&](int64_t first, int64_t pair) {
    return packed + first / panel * panel * pairs + pair * width_at(first) + first % panel;
  };
  if (line_step == 1) {
    constexpr int64_t ahead = 16, line = 32;  // rows, and elements of a line of the cache: what is asked of the memory
    for (int64_t p = 0; p < k; p += 2) {
      const Bf16* first = lines + p * k_step;
      const Bf16* second = p + 1 < k ? first + k_step : nullptr;
      for (int64_t begin = 0; begin < count; begin += panel) {
        const int64_t width = count - begin < panel ? count - begin : panel;
        uint32_t* words = place(begin, p / 2);
        for (int64_t i = 0; i < width; i += line) {
          __builtin_prefetch(first + begin + i + ahead * k_step);
          __builtin_prefetch(first + begin + i + (ahead + 1) * k_step);
        }
        sweep(0, width, [&](int64_t i, auto extent) {
          interleave(words + i, first + begin + i, second == nullptr ? nullptr : second + begin + i, extent);
        });
      }
    }
    return;
  }
  for (int64_t first = 0; first < count; first += lanes) {
    const int64_t width = width_at(first);
    for (int64_t p = 0; p < k; p += 2 * lanes) {
      __m512 words[lanes];
      for (int64_t i = 0; i < lanes; ++i) {
        words[i] = first + i < count ? load_words(lines + (first + i) * line_step + p, k - p) : _mm512_setzero_ps();
      }
      transpose16(words);
      uint32_t* to = place(first, p / 2);
      const int64_t present = pairs - p / 2 < lanes ? pairs - p / 2 : lanes;
      for (int64_t i = 0; i < present; ++i) _mm512_storeu_ps(to + i * width, words[i]);
    }
  }
}

// The left operand: the word of row i and pair p is at data + i * row + p * pair, in bytes. `ahead`: the rows behind
// those of a tile are asked of the memory meanwhile.
struct Left {
  const unsigned char* data;
  int64_t row, pair;
  bool ahead;

  // Rows of a tile. Rows that are read in place and lie whole pages apart share one set of the first cache, which has
  // room for few: 24 of them were read at 117 to 129 GFLOP/s, 8 are at 298 to 305.
  int64_t at_once(int64_t most) const {
    constexpr int64_t page = 4096, few = 8;
    return ahead && row % page == 0 && most > few ? few : most;
  }
};

struct Result {
  float* c_float;
  Bf16* c_bf16;
  int64_t row;
  bool accumulate;

  Result at(int64_t i, int64_t j) const {
    const int64_t place = i * row + j;
    return {c_float == nullptr ? nullptr : c_float + place, c_bf16 == nullptr ? nullptr : c_bf16 + place, row,
            accumulate};
  }
};

template <class C, class Extent>
INGOT_INLINE void put(C* c, Floats sums, bool accumulate, Extent extent) {
  store_computed(c, accumulate ? load(c, extent) + sums : sums, extent);
}

// What a tile sums: its rows of the left operand, its panel of the right one, packed, and how many pairs.
struct Sum {
  Left a;
  const uint32_t* b;
  int64_t pairs;

  // From row `row` and column `column` on; a column that begins a panel.
  Sum at(int64_t row, int64_t column) const {
    return {{a.data + row * a.row, a.row, a.pair, a.ahead}, b + column * pairs, pairs};
  }
};

// Adds to rows x vectors sums.
template <int rows, int vectors>
INGOT_INLINE void add_pairs(Floats (&sums)[rows][vectors], const Sum& sum) {
  const Left& a = sum.a;
  const uint32_t* b = sum.b;
  // A pointer for every four rows, and their distances from it; the compiler, which would step from row to row in one
  // chain of additions, is not to know what they are.
  constexpr int groups = (rows + 3) / 4;
  const unsigned char* group[groups];
  for (int g = 0; g < groups; ++g) group[g] = a.data + 4 * g * a.row;
  constexpr int64_t words_of_line = 16;
  int64_t distance[4] = {0, a.row, 2 * a.row, 3 * a.row};
  for (int i = 1; i < 4; ++i) asm("" : "+r"(distance[i]));
  for (int64_t p = 0; p < sum.pairs; ++p) {
    if (a.ahead && p % words_of_line == 0) {
      INGOT_UNROLL
      for (int i = 0; i < rows; ++i) __builtin_prefetch(group[i / 4] + distance[i % 4] + rows * a.row, 0, 2);
    }
    __m512bh right[vectors];
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) right[v] = (__m512bh)_mm512_loadu_si512(b + v * lanes);
    INGOT_UNROLL
    for (int i = 0; i < rows; ++i) {
      int pair_of_a;
      __builtin_memcpy(&pair_of_a, group[i / 4] + distance[i % 4], sizeof pair_of_a);
      const __m512bh left = (__m512bh)_mm512_set1_epi32(pair_of_a);
      INGOT_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = (Floats)_mm512_dpbf16_ps((__m512)sums[i][v], left, right[v]);
    }
    INGOT_UNROLL
    for (int g = 0; g < groups; ++g) group[g] += a.pair;
    b += vectors * lanes;
  }
}

// rows x vectors sums over all pairs, and those of the term, into `columns` columns of c.
template <int rows, int vectors>
void tile(const Result& c, const Sum& product, const Sum& term, int64_t columns) {
  Floats sums[rows][vectors];
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) sums[i][v] = Floats{};
  }
  add_pairs<rows, vectors>(sums, product);
  if (term.pairs > 0) add_pairs<rows, vectors>(sums, term);
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int64_t left = columns - v * lanes;
      const Result place = c.at(i, v * lanes);
      const auto to = [&](auto extent) {
        if (place.c_float != nullptr) {
          put(place.c_float, sums[i][v], c.accumulate, extent);
        } else {
          put(place.c_bf16, sums[i][v], c.accumulate, extent);
        }
      };
      if (left >= lanes) {
        to(Whole{});
      } else {
        to(Part{static_cast<int>(left)});
      }
    }
  }
}

template <int most, int vectors>
void rows_of(const Result& c, const Sum& product, const Sum& term, int64_t columns, int64_t count) {
  if (count == most) return tile<most, vectors>(c, product, term, columns);
  if constexpr (most > 1) rows_of<most - 1, vectors>(c, product, term, columns, count);
}

using RowsOf = void(const Result& c, const Sum& product, const Sum& term, int64_t columns, int64_t count);
constexpr RowsOf* by_vectors[most_vectors] = {rows_of<sums_at_once, 1>, rows_of<sums_at_once / 2, 2>,
                                              rows_of<sums_at_once / 3, 3>, rows_of<sums_at_once / 4, 4>};

// Rows of a with packed columns of b, in tiles of about as many rows each. Rows come first, so that c is written from
// left to right.
void multiply(const Result& c, const Sum& product, const Sum& term, int64_t m, int64_t n) {
  const int64_t widest = n < pair_gemm_panel ? (n + lanes - 1) / lanes : most_vectors;
  const int64_t most = product.a.at_once(sums_at_once / widest);
  const int64_t tiles = (m + most - 1) / most;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = m * t / tiles, count = m * (t + 1) / tiles - first;
    for (int64_t j = 0; j < n; j += pair_gemm_panel) {
      const int64_t columns = n - j < pair_gemm_panel ? n - j : pair_gemm_panel;
      Sum part = product.at(first, j);
      part.a.ahead = part.a.ahead && j == 0;
      by_vectors[(columns - 1) / lanes](c.at(first, j), part, term.at(first, j), columns, count);
    }
  }
}

void run(const GemmShape& s, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, const PairTerm& term,
         uint32_t* pack) {
  constexpr auto element = static_cast<int64_t>(sizeof(Bf16)), word = static_cast<int64_t>(sizeof(uint32_t));
  const int64_t pairs = (s.k + 1) / 2, term_pairs = term.k / 2;
  const int64_t n_most = pair_gemm_columns(pairs + term_pairs);
  uint32_t* packed_a = pack;
  uint32_t* packed_b = packed_a + pair_gemm_rows * pairs;
  uint32_t* packed_term = packed_b + n_most * pairs;
  const bool in_place = s.a_column == 1 && s.k % 2 == 0;
  const Result c{c_float, c_bf16, s.c_row, s.accumulate};
  for (int64_t j0 = 0; j0 < s.n; j0 += n_most) {
    const int64_t n = s.n - j0 < n_most ? s.n - j0 : n_most;
    pack_lines(packed_b, b + j0 * s.b_column, s.b_column, s.b_row, n, pair_gemm_panel, s.k);
    Sum added{{}, packed_term, term_pairs};
    if (term_pairs > 0) {
      pack_lines(packed_term, term.b + j0 * term.b_column, term.b_column, term.b_row, n, pair_gemm_panel, term.k);
      added.a = {reinterpret_cast<const unsigned char*>(term.low), term.k * element, 2 * element, false};
    }
    if (in_place) {
      const Left left{reinterpret_cast<const unsigned char*>(a), s.a_row * element, 2 * element, true};
      multiply(c.at(0, j0), {left, packed_b, pairs}, added, s.m, n);
      continue;
    }
    for (int64_t i0 = 0; i0 < s.m; i0 += pair_gemm_rows) {
      const int64_t m = s.m - i0 < pair_gemm_rows ? s.m - i0 : pair_gemm_rows;
      pack_lines(packed_a, a + i0 * s.a_row, s.a_row, s.a_column, m, pair_gemm_rows, s.k);
      const Left left{reinterpret_cast<const unsigned char*>(packed_a), word, rounded_up(m) * word, false};
      multiply(c.at(i0, j0), {left, packed_b, pairs}, added.at(i0, 0), m, n);
    }
  }
}

}  // namespace

const PairGemmKernels pair_gemm_kernels = {run};
#else
const PairGemmKernels pair_gemm_kernels = {nullptr};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
