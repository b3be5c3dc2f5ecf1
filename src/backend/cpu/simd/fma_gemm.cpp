// The blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3),
// 2008. In a part of k, a panel of b stays in L1 while the rows of a, which stay in L2, are multiplied with it, a
// register tile at a time; the tile's sums are kept in fp32 from one part to the next, so they are chains over all of
// k.
#include "backend/cpu/simd/fma_gemm.h"

#include "backend/cpu/simd/gemm_result.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(INGOT_SIMD_avx512)
namespace {

constexpr int sums_at_once = fma_gemm_max_tile_rows;  // with up to 4 vectors of b and 1 element of a, of 32 registers
constexpr int max_vectors = fma_gemm_panel / lanes;
constexpr int64_t depth = fma_gemm_depth;

int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t rounded_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }
// The size of a part if `count` is divided into as few as can be of at most `most`, which `step` divides, all but the
// last multiples of `step`.
int64_t even_part(int64_t count, int64_t most, int64_t step) {
  const int64_t parts = count > most ? (count + most - 1) / most : 1;
  const int64_t part = rounded_up((count + parts - 1) / parts, step);
  return part > 0 ? part : step;
}

// A product that is added to c: element (i, p) of a is a[i * a_row + p * a_column], and b's likewise.
struct Product {
  const Bf16* a;
  const Bf16* b;
  int64_t a_row, a_column, b_row, b_column, k;
};

// The elements [begin, begin + k) of the sums over both products, one after the other.
struct Part {
  const Product (&products)[2];
  int64_t begin, k;

  // Calls body(product, its first element of k, number of these, their place in the part).
  template <class Body>
  void for_each_product(Body body) const {
    int64_t before = 0;
    for (const Product& product : products) {
      const int64_t first = begin > before ? begin - before : 0, last = at_most(begin + k - before, product.k);
      if (first < last) body(product, first, last - first, before + first - begin);
      before += product.k;
    }
  }
};

// Rows of a, widened. `along_k`: the elements of a row are consecutive, and rows `depth` apart. Else tiles of
// `tile_rows` rows, each [k, tile_rows]. The rows after the last one of its tile are zeros.
struct LeftBlock {
  float* data;
  bool along_k;
  int64_t tile_rows;

  // Rows [begin, begin + rows) of a.
  void widen(const Part& part, int64_t begin, int64_t rows) const {
    part.for_each_product([&](const Product& product, int64_t first, int64_t k, int64_t place) {
      const Bf16* a = product.a + begin * product.a_row + first * product.a_column;
      along_k ? widen_lines(a, product.a_row, rows, k, place) : widen_tiles(a, product.a_column, rows, k, part.k);
    });
    if (!along_k) return;
    for (int64_t i = rows; i < rounded_up(rows, tile_rows); ++i) {
      for (int64_t p = 0; p < part.k; p += lanes) store(data + i * depth + p, Floats{}, AllLanes{});
    }
  }
  const float* tile(int64_t row, int64_t k) const { return data + row * (along_k ? depth : k); }

 private:
  void widen_lines(const Bf16* a, int64_t a_row, int64_t rows, int64_t k, int64_t place) const {
    for (int64_t i = 0; i < rows; ++i) {
      float* to = data + i * depth + place;
      for_each_vector(0, k, [&](int64_t p, auto extent) { store(to + p, load(a + i * a_row + p, extent), extent); });
    }
  }
  void widen_tiles(const Bf16* a, int64_t a_column, int64_t rows, int64_t k, int64_t part_k) const {
    for (int64_t p = 0; p < k; ++p) {
      const Bf16* line = a + p * a_column;
      for (int64_t row = 0; row < rows; row += tile_rows) {
        float* to = data + row * part_k + p * tile_rows;
        for_each_vector(0, tile_rows, [&](int64_t i, auto extent) {
          const int64_t left = rows - row - i;
          const Floats elements = left >= lanes ? load(line + row + i, AllLanes{})
                                  : left > 0    ? load(line + row + i, FirstLanes{static_cast<int>(left)})
                                                : Floats{};
          store(to + i, elements, extent);
        });
      }
    }
  }
};

// Columns of b, widened, in panels of `panel` columns: [k, panel], the last one [k, its columns rounded up to whole
// vectors]. What is there instead of missing columns is not stored.
struct RightBlock {
  float* data;
  int64_t panel;

  // Columns [begin, begin + columns) of b.
  void widen(const Part& part, int64_t begin, int64_t columns) const {
    part.for_each_product([&](const Product& product, int64_t first, int64_t k, int64_t place) {
      const Bf16* b = product.b + begin * product.b_column + first * product.b_row;
      for (int64_t j = 0; j < columns; j += panel) {
        const int64_t width = at_most(panel, columns - j), stride = rounded_up(width, lanes);
        float* to = data + j * part.k + place * stride;
        if (product.b_column == 1) {
          widen_lines(to, stride, b + j, product.b_row, width, k);
        } else {
          transpose_lines(to, stride, b + j * product.b_column, product.b_column, width, k);
        }
      }
    });
  }
  const float* of(int64_t column, int64_t k) const { return data + column * k; }

 private:
  static void widen_lines(float* to, int64_t stride, const Bf16* b, int64_t b_row, int64_t width, int64_t k) {
    constexpr int64_t distance = 16;  // prefetch distance in lines
    for (int64_t p = 0; p < k; ++p) {
      const Bf16* line = b + p * b_row;
      for (int64_t j = 0; j < width; j += 2 * lanes) __builtin_prefetch(line + distance * b_row + j);
      for_each_vector(0, width,
                      [&](int64_t j, auto extent) { store(to + p * stride + j, load(line + j, extent), AllLanes{}); });
    }
  }
  // Transposes pairs of elements, then widens both.
  static void transpose_lines(float* to, int64_t stride, const Bf16* b, int64_t b_column, int64_t width, int64_t k) {
    for (int64_t j = 0; j < width; j += lanes) {
      for (int64_t p = 0; p < k; p += 2 * lanes) {
        __m512 pairs[lanes];
        for (int64_t i = 0; i < lanes; ++i) {
          pairs[i] = j + i < width ? load_pairs(b + (j + i) * b_column + p, k - p) : _mm512_setzero_ps();
        }
        transpose16(pairs);
        float* at = to + p * stride + j;
        for (int64_t i = 0; i < lanes && p + 2 * i < k; ++i) {
          const Words both = words((Floats)pairs[i]);
          store(at + 2 * i * stride, floats(both << 16), AllLanes{});
          if (p + 2 * i + 1 < k) store(at + (2 * i + 1) * stride, floats(both & 0xffff0000U), AllLanes{});
        }
      }
    }
  }
  INGOT_MASKED __m512 load_pairs(const Bf16* p, int64_t count) {
    const __mmask32 present = count < 2 * lanes ? (__mmask32)((1U << count) - 1U) : ~(__mmask32)0;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(present, p));
  }
};

// rows x vectors sums over a part of k, which go on from those of the part before; after the last one, `count` rows of
// `columns` columns go into c.
template <int rows, int vectors, bool along_k>
void tile(const Result& c, const Partial& partial, const float* a, const float* b, int64_t k, int64_t count,
          int64_t columns) {
  Floats sums[rows][vectors];
  begin_sums(sums, partial);
  if (partial.ends) prefetch_result<rows, vectors>(c);
  for (int64_t p = 0; p < k; ++p) {
    Floats right[vectors];
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) right[v] = load(b + v * lanes, AllLanes{});
    INGOT_UNROLL
    for (int i = 0; i < rows; ++i) {
      const Floats left = splat(a[along_k ? i * depth : i]);
      INGOT_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = fma(left, right[v], sums[i][v]);
    }
    a += along_k ? 1 : rows;
    b += vectors * lanes;
  }
  if (!partial.ends) {
    INGOT_UNROLL
    for (int i = 0; i < rows; ++i) {
      INGOT_UNROLL
      for (int v = 0; v < vectors; ++v) store(partial.data + i * partial.row + v * lanes, sums[i][v], AllLanes{});
    }
    return;
  }
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    if (i >= count) continue;
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      store_sums(c.at(i, v * lanes), sums[i][v], columns - v * lanes);
    }
  }
}

using Tile = void(const Result& c, const Partial& partial, const float* a, const float* b, int64_t k, int64_t count,
                  int64_t columns);

// By the vectors of the block's panels, from which the rows of a tile follow, and by those of the panel at hand.
constexpr int tile_rows(int64_t panel_vectors) { return static_cast<int>(sums_at_once / panel_vectors); }
template <bool along_k>
constexpr Tile* tiles[max_vectors][max_vectors] = {
    {tile<tile_rows(1), 1, along_k>},
    {tile<tile_rows(2), 1, along_k>, tile<tile_rows(2), 2, along_k>},
    {tile<tile_rows(3), 1, along_k>, tile<tile_rows(3), 2, along_k>, tile<tile_rows(3), 3, along_k>},
    {tile<tile_rows(4), 1, along_k>, tile<tile_rows(4), 2, along_k>, tile<tile_rows(4), 3, along_k>,
     tile<tile_rows(4), 4, along_k>}};

// Multiplies `rows` rows of a with `columns` columns of b, over `k`.
void multiply(const Result& c, const Partial& partial, const LeftBlock& a, const RightBlock& b, int64_t rows,
              int64_t columns, int64_t k) {
  for (int64_t j = 0; j < columns; j += b.panel) {
    const int64_t width = at_most(b.panel, columns - j);
    const auto& of_block = (a.along_k ? tiles<true> : tiles<false>)[b.panel / lanes - 1];
    Tile* const run = of_block[(width - 1) / lanes];
    for (int64_t i = 0; i < rows; i += a.tile_rows) {
      run(c.at(i, j), partial.at(i, j), a.tile(i, k), b.of(j, k), k, at_most(a.tile_rows, rows - i), width);
    }
  }
}

void run(const GemmShape& s, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b, const LowRankTerm& term,
         float* pack) {
  static_assert(fma_gemm_rows % sums_at_once == 0 && depth % lanes == 0);
  const Result c{c_float, c_bf16, s.c_row, s.accumulate};
  const Product products[2] = {{a, b, s.a_row, s.a_column, s.b_row, s.b_column, s.k},
                               {term.low, term.b, term.k, 1, term.b_row, term.b_column, term.k}};
  float* const packed_b = pack + fma_gemm_rows * depth;
  float* const partial_sums = packed_b + fma_gemm_columns * depth;
  const int64_t k = s.k + term.k, part_k = even_part(k, depth, lanes);
  const int64_t columns_at_once = even_part(s.n, fma_gemm_columns, fma_gemm_panel);
  constexpr int64_t rows_at_once = fma_gemm_partial_rows;
  for (int64_t j = 0; j < s.n; j += columns_at_once) {
    const int64_t columns = at_most(columns_at_once, s.n - j), panel = even_part(columns, fma_gemm_panel, lanes);
    const RightBlock right{packed_b, panel};
    const LeftBlock left{pack, s.a_column == 1, tile_rows(panel / lanes)};
    // A row that is multiplied with a single panel is read once: from L1, if few are widened at a time.
    const int64_t widened_rows = columns <= panel ? left.tile_rows : fma_gemm_rows;
    for (int64_t i0 = 0; i0 < s.m; i0 += rows_at_once) {
      const int64_t end = at_most(i0 + rows_at_once, s.m);
      int64_t begin = 0;
      do {
        const Part part{products, begin, at_most(part_k, k - begin)};
        right.widen(part, j, columns);
        for (int64_t i = i0; i < end; i += widened_rows) {
          const int64_t rows = at_most(widened_rows, end - i);
          left.widen(part, i, rows);
          const Partial partial{partial_sums, fma_gemm_columns, begin == 0, begin + part.k == k};
          multiply(c.at(i, j), partial.at(i - i0, 0), left, right, rows, columns, part.k);
        }
        begin += part.k;
      } while (begin < k);
    }
  }
}

}  // namespace

const FmaGemmKernels fma_gemm_kernels = {run};
#else
const FmaGemmKernels fma_gemm_kernels = {nullptr};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
