// Words are pairs of bf16 that are consecutive along k. A register tile holds the sums of some rows and of one to four
// vectors of columns, over all of k or over the part that is packed. Each step loads vectors of words of b for one
// pair, and broadcasts a word of a for every row.
#include "backend/cpu/simd/pair_gemm.h"

#include "backend/cpu/simd/gemm_result.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(__AVX512BF16__)
namespace {

// 24 sums, up to 4 of b and 1 of a, of 32 registers.
constexpr int sums_at_once = 24;
constexpr int max_vectors = pair_gemm_panel / lanes;

INGOT_MASKED __m512 load_words(const Bf16* p, int64_t count) {
  const __mmask32 present = count < 32 ? (__mmask32)((1U << count) - 1U) : ~(__mmask32)0;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(present, p));
}

int64_t rounded_up(int64_t count) { return (count + lanes - 1) / lanes * lanes; }

// The 32 elements from `p` on, or the first `count`, then zeros.
INGOT_INLINE __m512i load_line(const Bf16* p, int64_t count) { return _mm512_castps_si512(load_words(p, count)); }

// Packs `count` lines of k elements into panels of `panel` lines, a multiple of the lanes: per panel, words [pairs, its
// number of lines, rounded up]. One of the steps is 1.
template <int64_t panel>
void pack_lines(uint32_t* packed, const Bf16* lines, int64_t line_step, int64_t k_step, int64_t count, int64_t k) {
  const int64_t pairs = (k + 1) / 2;
  const auto put = [&](int64_t first, int64_t pair, __m512i words) {
    const int64_t begin = first / panel * panel;
    const int64_t width = count - begin < panel ? rounded_up(count - begin) : panel;
    _mm512_storeu_si512(packed + begin * pairs + pair * width + (first - begin), words);
  };
  if (line_step == 1) {
    constexpr int64_t distance = 16, step = 32;  // prefetch distance in rows; elements per vector and cache line
    // Elements 0 and 32, 1 and 33, ... of two vectors, of which the second begins with element 32.
    Words low, high;
    for (int i = 0; i < lanes; ++i) {
      low[i] = static_cast<uint32_t>(i | (32 + i) << 16);
      high[i] = static_cast<uint32_t>(16 + i | (48 + i) << 16);
    }
    for (int64_t p = 0; p < k; p += 2) {
      const Bf16* first = lines + p * k_step;
      const bool last = p + 1 == k;
      for (int64_t i = 0; i < count; i += step) {
        __builtin_prefetch(first + i + distance * k_step);
        __builtin_prefetch(first + i + (distance + 1) * k_step);
        const __m512i even = load_line(first + i, count - i);
        const __m512i odd = last ? _mm512_setzero_si512() : load_line(first + k_step + i, count - i);
        put(i, p / 2, _mm512_permutex2var_epi16(even, (__m512i)low, odd));
        if (i + lanes < count) put(i + lanes, p / 2, _mm512_permutex2var_epi16(even, (__m512i)high, odd));
      }
    }
    return;
  }
  for (int64_t first = 0; first < count; first += lanes) {
    for (int64_t p = 0; p < k; p += 2 * lanes) {
      __m512 words[lanes];
      for (int64_t i = 0; i < lanes; ++i) {
        words[i] = first + i < count ? load_words(lines + (first + i) * line_step + p, k - p) : _mm512_setzero_ps();
      }
      transpose16(words);
      const int64_t present = pairs - p / 2 < lanes ? pairs - p / 2 : lanes;
      for (int64_t i = 0; i < present; ++i) put(first, p / 2 + i, _mm512_castps_si512(words[i]));
    }
  }
}

// The left operand: the word of row i and pair p is at data + i * row + p * pair, in bytes. `prefetch`: while a tile is
// computed, prefetch the rows of the next one.
struct Left {
  const unsigned char* data;
  int64_t row, pair;
  bool prefetch;

  static Left of_rows(const Bf16* rows, int64_t stride, bool prefetch) {
    constexpr auto element = static_cast<int64_t>(sizeof(Bf16));
    return {reinterpret_cast<const unsigned char*>(rows), stride * element, 2 * element, prefetch};
  }
  static Left of_panel(const uint32_t* packed, int64_t rows) {
    constexpr auto word = static_cast<int64_t>(sizeof(uint32_t));
    return {reinterpret_cast<const unsigned char*>(packed), word, rounded_up(rows) * word, false};
  }

  // Rows per tile, at most `max_rows`. Rows that are read in place and are a multiple of the page size apart map to one
  // set of L1, which has few ways: 117 to 129 GFLOP/s were measured with 24 such rows, and 298 to 305 with 8.
  int64_t rows_per_tile(int64_t max_rows) const {
    constexpr int64_t page = 4096, few = 8;
    return prefetch && row % page == 0 && max_rows > few ? few : max_rows;
  }
};

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

// The addresses of a tile's rows at one k: one pointer for every four rows, and the offsets of the rows from it. The
// asm hides the offsets from the compiler, which would otherwise step from row to row in one chain of additions.
template <int rows>
struct TileRowPointers {
  static constexpr int groups = (rows + 3) / 4;
  const unsigned char* group[groups];
  int64_t offset[4];

  explicit TileRowPointers(const Left& a) : offset{0, a.row, 2 * a.row, 3 * a.row} {
    for (int g = 0; g < groups; ++g) group[g] = a.data + 4 * g * a.row;
    for (int i = 1; i < 4; ++i) asm("" : "+r"(offset[i]));
  }
  const unsigned char* of(int row) const { return group[row / 4] + offset[row % 4]; }
  Floats word(int row) const {
    float word;
    __builtin_memcpy(&word, of(row), sizeof word);
    return (Floats)_mm512_set1_ps(word);
  }
  void advance(int64_t bytes) {
    INGOT_UNROLL
    for (int g = 0; g < groups; ++g) group[g] += bytes;
  }
};

// Adds the products of the operands to rows x vectors sums.
template <int rows, int vectors>
INGOT_INLINE void add_products(Floats (&sums)[rows][vectors], const TileOperands& operands) {
  const Left& a = operands.a;
  const uint32_t* b = operands.b;
  TileRowPointers<rows> left(a);
  constexpr int64_t words_of_line = 16;
  for (int64_t p = 0; p < operands.pairs; ++p) {
    if (a.prefetch && p % words_of_line == 0) {
      INGOT_UNROLL
      for (int i = 0; i < rows; ++i) __builtin_prefetch(left.of(i) + rows * a.row, 0, 2);
    }
    __m512bh right[vectors];
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) right[v] = (__m512bh)_mm512_loadu_si512(b + v * lanes);
    INGOT_UNROLL
    for (int i = 0; i < rows; ++i) {
      const __m512bh word = (__m512bh)left.word(i);
      INGOT_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = (Floats)_mm512_dpbf16_ps((__m512)sums[i][v], word, right[v]);
    }
    left.advance(a.pair);
    b += vectors * lanes;
  }
}

// rows x vectors sums over the pairs of a part of k, then over the pairs of the term. They go on from those of the part
// before, and go into `columns` columns of c after the last one.
template <int rows, int vectors>
void tile(const Result& c, const Partial& partial, const TileOperands& product, const TileOperands& term,
          int64_t columns) {
  Floats sums[rows][vectors];
  begin_sums(sums, partial);
  if (partial.ends) prefetch_result<rows, vectors>(c);
  add_products(sums, product);
  if (term.pairs > 0) add_products(sums, term);
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      if (partial.ends) {
        store_sums(c.at(i, v * lanes), sums[i][v], columns - v * lanes);
      } else {
        store(partial.data + i * partial.row + v * lanes, sums[i][v], AllLanes{});
      }
    }
  }
}

// A tile of `count` rows, at most `max_rows`: rows of a that are read in place have no others after them.
template <int max_rows, int vectors>
void tile_rows_up_to(const Result& c, const Partial& partial, const TileOperands& product, const TileOperands& term,
                     int64_t columns, int64_t count) {
  if (count == max_rows) return tile<max_rows, vectors>(c, partial, product, term, columns);
  if constexpr (max_rows > 1) tile_rows_up_to<max_rows - 1, vectors>(c, partial, product, term, columns, count);
}

using TileRows = void(const Result& c, const Partial& partial, const TileOperands& product, const TileOperands& term,
                      int64_t columns, int64_t count);
constexpr TileRows* tile_rows_by_vectors[max_vectors] = {
    tile_rows_up_to<sums_at_once, 1>, tile_rows_up_to<sums_at_once / 2, 2>, tile_rows_up_to<sums_at_once / 3, 3>,
    tile_rows_up_to<sums_at_once / 4, 4>};

// Calls body(first row, rows) for tiles of m rows and n columns, with about the same number of rows each.
template <class Body>
void for_each_tile(const Left& a, int64_t m, int64_t n, Body body) {
  const int64_t widest = n < pair_gemm_panel ? (n + lanes - 1) / lanes : max_vectors;
  const int64_t max_rows = a.rows_per_tile(sums_at_once / widest);
  const int64_t tiles = (m + max_rows - 1) / max_rows;
  for (int64_t t = 0; t < tiles; ++t) body(m * t / tiles, m * (t + 1) / tiles - m * t / tiles);
}

// Multiplies a tile's rows of a with packed columns of b, so that c is written from left to right.
void multiply_tile(const Result& c, const Partial& partial, const TileOperands& product, const TileOperands& term,
                   int64_t rows, int64_t n) {
  for (int64_t j = 0; j < n; j += pair_gemm_panel) {
    const int64_t columns = n - j < pair_gemm_panel ? n - j : pair_gemm_panel;
    TileOperands operands = product.at(0, j);
    operands.a.prefetch = operands.a.prefetch && j == 0;
    tile_rows_by_vectors[(columns - 1) / lanes](c.at(0, j), partial.at(0, j), operands, term.at(0, j), columns, rows);
  }
}

// Multiplies m rows of a with n packed columns of b.
void multiply(const Result& c, const Partial& partial, const TileOperands& product, const TileOperands& term, int64_t m,
              int64_t n) {
  for_each_tile(product.a, m, n, [&](int64_t first, int64_t rows) {
    multiply_tile(c.at(first, 0), partial.at(first, 0), product.at(first, 0), term.at(first, 0), rows, n);
  });
}

// A gemm whose left operand is read in place.
void run_in_place(const GemmShape& s, const Result& c, const Bf16* a, const Bf16* b, const LowRankTerm& term,
                  uint32_t* pack) {
  const int64_t pairs = (s.k + 1) / 2, term_pairs = term.k / 2;
  const int64_t max_n = pair_gemm_columns(pairs + term_pairs);
  uint32_t* packed_term = pack + max_n * pairs;
  for (int64_t j0 = 0; j0 < s.n; j0 += max_n) {
    const int64_t n = s.n - j0 < max_n ? s.n - j0 : max_n;
    pack_lines<pair_gemm_panel>(pack, b + j0 * s.b_column, s.b_column, s.b_row, n, s.k);
    TileOperands added{{}, packed_term, term_pairs};
    if (term_pairs > 0) {
      pack_lines<pair_gemm_panel>(packed_term, term.b + j0 * term.b_column, term.b_column, term.b_row, n, term.k);
      added.a = Left::of_rows(term.low, term.k, false);
    }
    multiply(c.at(0, j0), {nullptr, 0, true, true}, {Left::of_rows(a, s.a_row, true), pack, pairs}, added, s.m, n);
  }
}

// A gemm whose operands are both packed, in parts of k, one after the other, so that they stay in the caches.
void run_packed(const GemmShape& s, const Result& c, const Bf16* a, const Bf16* b, const LowRankTerm& term,
                uint32_t* pack) {
  const int64_t pairs = (s.k + 1) / 2, term_pairs = term.k / 2;
  const int64_t parts = pairs == 0 ? 1 : (pairs + pair_gemm_pairs - 1) / pair_gemm_pairs;
  const int64_t part_pairs = pairs < pair_gemm_pairs ? pairs : pair_gemm_pairs;
  const int64_t max_n = pair_gemm_columns(part_pairs + term_pairs);
  const int64_t max_m = parts == 1 ? s.m : pair_gemm_partial_rows;
  uint32_t* const packed_a = pack;
  uint32_t* const packed_b = packed_a + pair_gemm_rows * part_pairs;
  uint32_t* const packed_term = packed_b + max_n * part_pairs;
  auto* const partial_sums = reinterpret_cast<float*>(packed_term + max_n * term_pairs);
  for (int64_t j0 = 0; j0 < s.n; j0 += max_n) {
    const int64_t n = s.n - j0 < max_n ? s.n - j0 : max_n;
    if (term_pairs > 0) {
      pack_lines<pair_gemm_panel>(packed_term, term.b + j0 * term.b_column, term.b_column, term.b_row, n, term.k);
    }
    for (int64_t i0 = 0; i0 < s.m; i0 += max_m) {
      const int64_t m = s.m - i0 < max_m ? s.m - i0 : max_m;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = pairs * part / parts, count = pairs * (part + 1) / parts - first;
        const int64_t k0 = 2 * first, k = s.k - k0 < 2 * count ? s.k - k0 : 2 * count;
        const Partial partial{partial_sums, max_n, part == 0, part == parts - 1};
        const Bf16* right = b + j0 * s.b_column + k0 * s.b_row;
        pack_lines<pair_gemm_panel>(packed_b, right, s.b_column, s.b_row, n, k);
        for (int64_t i = 0; i < m; i += pair_gemm_rows) {
          const int64_t rows = m - i < pair_gemm_rows ? m - i : pair_gemm_rows;
          const Bf16* left = a + (i0 + i) * s.a_row + k0 * s.a_column;
          pack_lines<pair_gemm_rows>(packed_a, left, s.a_row, s.a_column, rows, k);
          TileOperands added{{}, packed_term, partial.ends ? term_pairs : 0};
          if (added.pairs > 0) added.a = Left::of_rows(term.low + (i0 + i) * term.k, term.k, false);
          multiply(c.at(i0 + i, j0), partial.at(i, 0), {Left::of_panel(packed_a, rows), packed_b, count}, added, rows,
                   n);
        }
      }
    }
  }
}

void run(const GemmShape& s, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, const LowRankTerm& term,
         uint32_t* pack) {
  const Result c{c_float, c_bf16, s.c_row, s.accumulate};
  if (s.a_column == 1 && s.k % 2 == 0) {
    run_in_place(s, c, a, b, term, pack);
  } else {
    run_packed(s, c, a, b, term, pack);
  }
}

}  // namespace

const PairGemmKernels pair_gemm_kernels = {run};
#else
const PairGemmKernels pair_gemm_kernels = {nullptr};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
