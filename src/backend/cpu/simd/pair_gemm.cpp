// Words are pairs of bf16 that are consecutive along k. A register tile holds the sums of some rows and of one to four
// vectors of columns, over all of k. Each step loads vectors of words of b for one pair, and broadcasts a word of a for
// every row.
#include "backend/cpu/simd/pair_gemm.h"

#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(__AVX512BF16__)
namespace {

// 24 sums, up to 4 of b and 1 of a, of 32 registers.
constexpr int sums_at_once = 24;
constexpr int max_vectors = pair_gemm_panel / lanes;

// Interleaves two lines that are not contiguous along k into words; `second` is null after the last element.
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

// Packs `count` lines of k elements into panels of `panel` lines, a multiple of the lanes: per panel, words [pairs, its
// number of lines, rounded up]. One of the steps is 1.
void pack_lines(uint32_t* packed, const Bf16* lines, int64_t line_step, int64_t k_step, int64_t count, int64_t panel,
                int64_t k) {
  const int64_t pairs = (k + 1) / 2;
  const auto width_at = [&](int64_t first) {
    const int64_t begin = first / panel * panel;
    return count - begin < panel ? rounded_up(count - begin) : panel;
  };
  const auto word_at = [&](int64_t first, int64_t pair) {
    return packed + first / panel * panel * pairs + pair * width_at(first) + first % panel;
  };
  if (line_step == 1) {
    constexpr int64_t distance = 16, line = 32;  // prefetch distance in rows; elements per cache line
    for (int64_t p = 0; p < k; p += 2) {
      const Bf16* first = lines + p * k_step;
      const Bf16* second = p + 1 < k ? first + k_step : nullptr;
      for (int64_t begin = 0; begin < count; begin += panel) {
        const int64_t width = count - begin < panel ? count - begin : panel;
        uint32_t* words = word_at(begin, p / 2);
        for (int64_t i = 0; i < width; i += line) {
          __builtin_prefetch(first + begin + i + distance * k_step);
          __builtin_prefetch(first + begin + i + (distance + 1) * k_step);
        }
        for_each_vector(0, width, [&](int64_t i, auto extent) {
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
      uint32_t* to = word_at(first, p / 2);
      const int64_t present = pairs - p / 2 < lanes ? pairs - p / 2 : lanes;
      for (int64_t i = 0; i < present; ++i) _mm512_storeu_ps(to + i * width, words[i]);
    }
  }
}

// The left operand: the word of row i and pair p is at data + i * row + p * pair, in bytes. `prefetch`: while a tile is
// computed, prefetch the rows of the next one.
struct Left {
  const unsigned char* data;
  int64_t row, pair;
  bool prefetch;

  // Rows per tile, at most `max_rows`. Rows that are read in place and are a multiple of the page size apart map to one
  // set of L1, which has few ways: 117 to 129 GFLOP/s were measured with 24 such rows, and 298 to 305 with 8.
  int64_t rows_per_tile(int64_t max_rows) const {
    constexpr int64_t page = 4096, few = 8;
    return prefetch && row % page == 0 && max_rows > few ? few : max_rows;
  }
};

struct Result {
  float* c_float;
  Bf16* c_bf16;
  int64_t row;
  bool accumulate;

  Result at(int64_t i, int64_t j) const {
    const int64_t offset = i * row + j;
    return {c_float == nullptr ? nullptr : c_float + offset, c_bf16 == nullptr ? nullptr : c_bf16 + offset, row,
            accumulate};
  }
};

template <class C, class Extent>
INGOT_INLINE void add_or_store(C* c, Floats sums, bool accumulate, Extent extent) {
  store_computed(c, accumulate ? load(c, extent) + sums : sums, extent);
}

// The operands of a tile: its rows of the left operand, its packed panel of the right one, and the number of pairs.
struct TileOperands {
  Left a;
  const uint32_t* b;
  int64_t pairs;

  // The operands from row `row` and column `column` on; the column must start a panel.
  TileOperands at(int64_t row, int64_t column) const {
    return {{a.data + row * a.row, a.row, a.pair, a.prefetch}, b + column * pairs, pairs};
  }
};

// Adds the products to rows x vectors sums.
template <int rows, int vectors>
INGOT_INLINE void add_pairs(Floats (&sums)[rows][vectors], const TileOperands& operands) {
  const Left& a = operands.a;
  const uint32_t* b = operands.b;
  // One pointer for every four rows, and the offsets of the rows from it. The asm hides the offsets from the
  // compiler, which would otherwise step from row to row in one chain of additions.
  constexpr int groups = (rows + 3) / 4;
  const unsigned char* group[groups];
  for (int g = 0; g < groups; ++g) group[g] = a.data + 4 * g * a.row;
  constexpr int64_t words_of_line = 16;
  int64_t offset[4] = {0, a.row, 2 * a.row, 3 * a.row};
  for (int i = 1; i < 4; ++i) asm("" : "+r"(offset[i]));
  for (int64_t p = 0; p < operands.pairs; ++p) {
    if (a.prefetch && p % words_of_line == 0) {
      INGOT_UNROLL
      for (int i = 0; i < rows; ++i) __builtin_prefetch(group[i / 4] + offset[i % 4] + rows * a.row, 0, 2);
    }
    __m512bh right[vectors];
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) right[v] = (__m512bh)_mm512_loadu_si512(b + v * lanes);
    INGOT_UNROLL
    for (int i = 0; i < rows; ++i) {
      int pair_of_a;
      __builtin_memcpy(&pair_of_a, group[i / 4] + offset[i % 4], sizeof pair_of_a);
      const __m512bh left = (__m512bh)_mm512_set1_epi32(pair_of_a);
      INGOT_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = (Floats)_mm512_dpbf16_ps((__m512)sums[i][v], left, right[v]);
    }
    INGOT_UNROLL
    for (int g = 0; g < groups; ++g) group[g] += a.pair;
    b += vectors * lanes;
  }
}

// rows x vectors sums over all pairs, then over the pairs of the term, into `columns` columns of c.
template <int rows, int vectors>
void tile(const Result& c, const TileOperands& product, const TileOperands& term, int64_t columns) {
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
      const Result out = c.at(i, v * lanes);
      const auto to = [&](auto extent) {
        if (out.c_float != nullptr) {
          add_or_store(out.c_float, sums[i][v], c.accumulate, extent);
        } else {
          add_or_store(out.c_bf16, sums[i][v], c.accumulate, extent);
        }
      };
      if (left >= lanes) {
        to(AllLanes{});
      } else {
        to(FirstLanes{static_cast<int>(left)});
      }
    }
  }
}

template <int max_rows, int vectors>
void tile_rows_up_to(const Result& c, const TileOperands& product, const TileOperands& term, int64_t columns,
                     int64_t count) {
  if (count == max_rows) return tile<max_rows, vectors>(c, product, term, columns);
  if constexpr (max_rows > 1) tile_rows_up_to<max_rows - 1, vectors>(c, product, term, columns, count);
}

using TileRows = void(const Result& c, const TileOperands& product, const TileOperands& term, int64_t columns,
                      int64_t count);
constexpr TileRows* tile_rows_by_vectors[max_vectors] = {
    tile_rows_up_to<sums_at_once, 1>, tile_rows_up_to<sums_at_once / 2, 2>, tile_rows_up_to<sums_at_once / 3, 3>,
    tile_rows_up_to<sums_at_once / 4, 4>};

// Multiplies rows of a with packed columns of b, in tiles with about the same number of rows each. The loop over rows
// is the outer one, so c is written from left to right.
void multiply(const Result& c, const TileOperands& product, const TileOperands& term, int64_t m, int64_t n) {
  const int64_t widest = n < pair_gemm_panel ? (n + lanes - 1) / lanes : max_vectors;
  const int64_t max_rows = product.a.rows_per_tile(sums_at_once / widest);
  const int64_t tiles = (m + max_rows - 1) / max_rows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = m * t / tiles, count = m * (t + 1) / tiles - first;
    for (int64_t j = 0; j < n; j += pair_gemm_panel) {
      const int64_t columns = n - j < pair_gemm_panel ? n - j : pair_gemm_panel;
      TileOperands operands = product.at(first, j);
      operands.a.prefetch = operands.a.prefetch && j == 0;
      tile_rows_by_vectors[(columns - 1) / lanes](c.at(first, j), operands, term.at(first, j), columns, count);
    }
  }
}

void run(const GemmShape& s, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, const PairTerm& term,
         uint32_t* pack) {
  constexpr auto element = static_cast<int64_t>(sizeof(Bf16)), word = static_cast<int64_t>(sizeof(uint32_t));
  const int64_t pairs = (s.k + 1) / 2, term_pairs = term.k / 2;
  const int64_t max_n = pair_gemm_columns(pairs + term_pairs);
  uint32_t* packed_a = pack;
  uint32_t* packed_b = packed_a + pair_gemm_rows * pairs;
  uint32_t* packed_term = packed_b + max_n * pairs;
  const bool in_place = s.a_column == 1 && s.k % 2 == 0;
  const Result c{c_float, c_bf16, s.c_row, s.accumulate};
  for (int64_t j0 = 0; j0 < s.n; j0 += max_n) {
    const int64_t n = s.n - j0 < max_n ? s.n - j0 : max_n;
    pack_lines(packed_b, b + j0 * s.b_column, s.b_column, s.b_row, n, pair_gemm_panel, s.k);
    TileOperands added{{}, packed_term, term_pairs};
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
