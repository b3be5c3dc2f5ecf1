// Shared by the attention kernels: gemms of small blocks and the packing of their operands. Compiled once per level.
//
// A gemm C [M, N] += A [M, K] B [K, N] has A row-major and B as a panel, both in 32-bit words: a word is one f32 or,
// for bf16 dot products, two bf16 that are consecutive along K. Every element of C is one chain of fused multiply-adds
// (or of two-term dot products, or at the level `amx` of products of 16 words) in the order of K, so its bits do not
// depend on M, N or the tile that it is in.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/attention.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

#if defined(INGOT_SIMD_avx512)
#include <immintrin.h>
#endif
#if defined(INGOT_SIMD_amx)  // always with INGOT_SIMD_avx512
#include "backend/cpu/amx/tile_registers.h"
#endif

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

constexpr int64_t kBlock = attention_block;
constexpr int64_t kRows = attention_rows;
constexpr int64_t kAlign = 16;  // panel widths are padded to a multiple of this

inline int64_t padded(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }
inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Step::Element is the dtype of q, k and v; `dot` adds one word of A times a vector of words of B.
template <class E>
struct F32Step {
  using Element = E;
  static constexpr int64_t pack = 1;
  static Floats dot(Floats sum, const float* a, const float* b) { return fma(splat(*a), load(b, AllLanes{}), sum); }
};

#if defined(INGOT_SIMD_avx512)
struct Bf16Step {
  using Element = Bf16;
  static constexpr int64_t pack = 2;
  static Floats dot(Floats sum, const float* a, const float* b) {
    const __m512 word = _mm512_set1_ps(*a);
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)word, (__m512bh)_mm512_loadu_ps(b));
  }
};
using Bf16Operands = Bf16Step;
#else
using Bf16Operands = F32Step<Bf16>;
#endif

template <class Step>
constexpr int64_t num_words(int64_t k) {
  return (k + Step::pack - 1) / Step::pack;
}

#if defined(INGOT_SIMD_avx512)
constexpr int kTileRows = 6, kTileVecs = 4;
#elif defined(INGOT_SIMD_avx2)
constexpr int kTileRows = 6, kTileVecs = 2;
#else
constexpr int kTileRows = 4, kTileVecs = 2;
#endif

template <class Step, int M, int N>
void tile(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, bool add) {
  Floats sum[M][N];
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) sum[i][j] = add ? load(c + i * ldc + j * lanes, AllLanes{}) : Floats{};
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int i = 0; i < M; ++i) {
      for (int j = 0; j < N; ++j) sum[i][j] = Step::dot(sum[i][j], a + i * lda + p, b + p * ldb + j * lanes);
    }
  }
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) store(c + i * ldc + j * lanes, sum[i][j], AllLanes{});
  }
}

template <class Step, int M, int N>
void tile_rows(int64_t rows, float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k,
               bool add) {
  if (rows == M) {
    tile<Step, M, N>(c, ldc, a, lda, b, ldb, k, add);
  } else if constexpr (M > 1) {
    tile_rows<Step, M - 1, N>(rows, c, ldc, a, lda, b, ldb, k, add);
  }
}

template <class Step, int N>
void tile_columns(int64_t vecs, int64_t rows, float* c, int64_t ldc, const float* a, int64_t lda, const float* b,
                  int64_t ldb, int64_t k, bool add) {
  if (vecs == N) {
    tile_rows<Step, kTileRows, N>(rows, c, ldc, a, lda, b, ldb, k, add);
  } else if constexpr (N > 1) {
    tile_columns<Step, N - 1>(vecs, rows, c, ldc, a, lda, b, ldb, k, add);
  }
}

template <class Step>
void vector_product(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t m,
                    int64_t n, int64_t k, bool add) {
  for (int64_t j = 0; j < n; j += kTileVecs * lanes) {
    const int64_t vecs = at_most(kTileVecs, (n - j) / lanes);
    for (int64_t i = 0; i < m; i += kTileRows) {
      tile_columns<Step, kTileVecs>(vecs, at_most(kTileRows, m - i), c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb,
                                    k, add);
    }
  }
}

#if defined(INGOT_SIMD_amx)
constexpr int64_t kTileLines = 16;  // rows of a register, and its words

// Registers 0 .. 3: sums of 2 x 2 blocks; 4 and 5: A; 6 and 7: B. `rows`: of A and of the sums, at most two registers.
inline TileShapes tile_shapes(int64_t rows) {
  TileShapes shapes;
  const auto upper = static_cast<uint8_t>(at_most(kTileLines, rows));
  const auto lower = static_cast<uint8_t>(rows > kTileLines ? rows - kTileLines : 1);
  const uint8_t of[8] = {upper, upper, lower, lower, upper, lower, kTileLines, kTileLines};
  for (int t = 0; t < 8; ++t) {
    shapes.row_bytes[t] = 64;
    shapes.rows[t] = of[t];
  }
  return shapes;
}

// Blocks of one or two registers of rows and of columns, with the shapes of tile_shapes().
template <bool two_rows, bool two_columns>
void tile_block(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, bool add) {
  float* below = c + kTileLines * ldc;
  if (add) {
    load_tile<0>(c, ldc);
    if constexpr (two_columns) load_tile<1>(c + kTileLines, ldc);
    if constexpr (two_rows) load_tile<2>(below, ldc);
    if constexpr (two_rows && two_columns) load_tile<3>(below + kTileLines, ldc);
  } else {
    zero_tile<0>();
    if constexpr (two_columns) zero_tile<1>();
    if constexpr (two_rows) zero_tile<2>();
    if constexpr (two_rows && two_columns) zero_tile<3>();
  }
  for (int64_t p = 0; p < k; p += kTileLines) {
    load_tile<4>(a + p, lda);
    load_tile<6>(b + p * ldb, ldb);
    add_tile_product<0, 4, 6>();
    if constexpr (two_columns) {
      load_tile<7>(b + p * ldb + kTileLines, ldb);
      add_tile_product<1, 4, 7>();
    }
    if constexpr (two_rows) {
      load_tile<5>(a + kTileLines * lda + p, lda);
      add_tile_product<2, 5, 6>();
      if constexpr (two_columns) add_tile_product<3, 5, 7>();
    }
  }
  store_tile<0>(c, ldc);
  if constexpr (two_columns) store_tile<1>(c + kTileLines, ldc);
  if constexpr (two_rows) store_tile<2>(below, ldc);
  if constexpr (two_rows && two_columns) store_tile<3>(below + kTileLines, ldc);
}

template <bool two_rows>
void tile_block_row(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t n,
                    int64_t k, bool add) {
  int64_t j = 0;
  for (; j + 2 * kTileLines <= n; j += 2 * kTileLines)
    tile_block<two_rows, true>(c + j, ldc, a, lda, b + j, ldb, k, add);
  if (j < n) tile_block<two_rows, false>(c + j, ldc, a, lda, b + j, ldb, k, add);
}

// As product(), for k a multiple of kTileLines.
inline void tile_product(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t m,
                         int64_t n, int64_t k, bool add) {
  constexpr int64_t step = 2 * kTileLines;
  int64_t configured = 0;  // rows
  for (int64_t i = 0; i < m; i += step) {
    const int64_t rows = at_most(step, m - i);
    if (rows != configured) configure_tiles(tile_shapes(rows));
    configured = rows;
    float* c_row = c + i * ldc;
    const float* a_row = a + i * lda;
    if (rows > kTileLines) {
      tile_block_row<true>(c_row, ldc, a_row, lda, b, ldb, n, k, add);
    } else {
      tile_block_row<false>(c_row, ldc, a_row, lda, b, ldb, n, k, add);
    }
  }
  release_tiles();
}
#endif

// C [m, n] = or += A [m, k words] B [k words, n]; n is a multiple of kAlign; strides in words.
template <class Step>
void product(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t m, int64_t n,
             int64_t k, bool add) {
#if defined(INGOT_SIMD_amx)
  if constexpr (Step::pack == 2) {
    const int64_t whole = k / kTileLines * kTileLines;
    if (whole > 0) {
      tile_product(c, ldc, a, lda, b, ldb, m, n, whole, add);
      if (whole == k) return;
      a += whole;
      b += whole * ldb;
      k -= whole;
      add = true;
    }
  }
#endif
  vector_product<Step>(c, ldc, a, lda, b, ldb, m, n, k, add);
}

// The addresses of up to kBlock consecutive rows of an operand.
template <class E>
struct RowList {
  const E* row[kBlock];
  int64_t count;

  // To the elements of the rows that are `elements` further on.
  void advance(int64_t elements) {
    for (int64_t i = 0; i < count; ++i) row[i] += elements;
  }
};

// The addresses of all rows of an operand. Strides are in elements.
template <class E>
struct Rows {
  const E* base;
  int64_t stride;
  const int32_t* table;  // see AttentionForward
  int64_t page;

  // Rows [begin, begin + count), at most kBlock; none if count is 0 or less.
  RowList<E> list(int64_t begin, int64_t count) const {
    constexpr int64_t unlimited = int64_t{1} << 40;
    RowList<E> rows;
    rows.count = count;
    const int64_t rows_per_page = table == nullptr ? unlimited : page;
    int64_t page_index = begin / rows_per_page;
    int64_t offset = begin % rows_per_page;
    for (int64_t i = 0; i < count; ++page_index, offset = 0) {
      const E* at = base + (table == nullptr ? offset : table[page_index] * page + offset) * stride;
      for (; i < count && offset < rows_per_page; ++i, ++offset, at += stride) rows.row[i] = at;
    }
    return rows;
  }
};

// Prefetches rows of d elements that will be read soon. The processor may drop some of many prefetches.
template <class E>
void prefetch_rows(const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto* row = reinterpret_cast<const char*>(rows.row[i]);
    for (int64_t byte = 0; byte < d * static_cast<int64_t>(sizeof(E)); byte += 64) __builtin_prefetch(row + byte);
  }
}

// Reads each cache line of rows of d elements, in the order of their addresses. In decode with one query the keys and
// values come from memory, and reading them is most of the time: in this order the hardware prefetches them, and no
// read is dropped.
template <class E>
void touch_rows(const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto* row = reinterpret_cast<const volatile char*>(rows.row[i]);
    for (int64_t byte = 0; byte < d * static_cast<int64_t>(sizeof(E)); byte += 64) (void)row[byte];
  }
}

// Word `w` of a row of `d` elements.
template <class Step>
float word(const typename Step::Element* row, int64_t w, int64_t d) {
  if constexpr (Step::pack == 1) {
    return widen(row[w]);
  } else {
    const uint32_t low = row[2 * w].bits;
    const uint32_t high = 2 * w + 1 < d ? row[2 * w + 1].bits : 0U;
    return __builtin_bit_cast(float, low | high << 16);
  }
}

// dst [count, ld words] = the rows as operand A, padded with zeros to `ld`.
template <class Step, class E = typename Step::Element>
void pack_a(float* dst, int64_t ld, const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const E* row = rows.row[i];
    float* to = dst + i * ld;
    const int64_t whole = d / Step::pack;
    int64_t w = 0;
    if constexpr (sizeof(E) * Step::pack == sizeof(float)) {
      __builtin_memcpy(to, row, static_cast<size_t>(whole) * sizeof(float));
      w = whole;
    } else {
      for (; w + lanes <= whole; w += lanes) store(to + w, load(row + w, AllLanes{}), AllLanes{});
    }
    for (; w < num_words<Step>(d); ++w) to[w] = word<Step>(row, w, d);
    for (; w < ld; ++w) to[w] = 0;
  }
}

#if defined(INGOT_SIMD_avx512)
inline __m512 wide_words(__m256i bits, const Bf16*) { return (__m512)from_bf16((Halves)bits); }
inline __m512 wide_words(__m256i bits, const F16*) { return (__m512)from_f16((Halves)bits); }

// Words [w, w + 16) of a row; zeros after its end.
template <class Step>
__m512 row_words(const typename Step::Element* row, int64_t w, int64_t d) {
  const int64_t left = d - w * Step::pack;
  if constexpr (Step::pack == 2) {
    const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row + 2 * w));
  } else {
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
    if constexpr (sizeof(*row) == sizeof(float)) {
      return _mm512_maskz_loadu_ps(mask, row + w);
    } else {
      return wide_words(_mm256_maskz_loadu_epi16(mask, row + w), row);
    }
  }
}
#endif

// dst [padded(words of d), kBlock] = the transposed rows, as operand B whose K is d; zeros in columns count ..
// padded(count).
template <class Step, class E = typename Step::Element>
void pack_b_transposed(float* dst, const RowList<E>& rows, int64_t d) {
  const int64_t count = rows.count;
  const int64_t height = num_words<Step>(d);
#if defined(INGOT_SIMD_avx512)
  for (int64_t i = 0; i < count; i += 16) {
    for (int64_t w = 0; w < height; w += 16) {
      __m512 r[16];
      for (int j = 0; j < 16; ++j) {
        r[j] = i + j < count ? row_words<Step>(rows.row[i + j], w, d) : _mm512_setzero_ps();
      }
      transpose16(r);
      for (int j = 0; j < 16; ++j) _mm512_storeu_ps(dst + (w + j) * kBlock + i, r[j]);
    }
  }
#else
  for (int64_t i = 0; i < padded(count); ++i) {
    const E* row = i < count ? rows.row[i] : nullptr;
    for (int64_t w = 0; w < height; ++w) dst[w * kBlock + i] = row == nullptr ? 0.0F : word<Step>(row, w, d);
  }
#endif
}

// dst [words of padded(count), padded(d)] = the rows, as operand B whose K is the index of the row: word (p, j) holds
// column j of rows p * pack to p * pack + pack - 1; zeros in the padding.
template <class Step, class E = typename Step::Element>
void pack_b(float* dst, const RowList<E>& rows, int64_t d) {
  const int64_t count = rows.count;
  const int64_t ld = padded(d);
  if constexpr (Step::pack == 1) {
    pack_a<Step>(dst, ld, rows, d);
    for (int64_t i = count * ld; i < padded(count) * ld; ++i) dst[i] = 0;
  } else {
#if defined(INGOT_SIMD_avx512)
    for (int64_t i = 0; i < padded(count); i += 2) {
      const E* low = i < count ? rows.row[i] : nullptr;
      const E* high = i + 1 < count ? rows.row[i + 1] : nullptr;
      for (int64_t j = 0; j < ld; j += 16) {
        const auto mask = static_cast<__mmask16>(d - j >= 16 ? 0xffff : d > j ? (1 << (d - j)) - 1 : 0);
        __m512i pair = _mm512_setzero_si512();
        if (low != nullptr) pair = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low + j));
        if (high != nullptr) {
          const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high + j));
          pair = _mm512_or_si512(pair, _mm512_slli_epi32(wide, 16));
        }
        _mm512_storeu_si512(dst + i / 2 * ld + j, pair);
      }
    }
#endif
  }
}

// Stores the values x of a row from column `j` on as words of operand A, in place of the row's fp32 values.
template <class Step>
INGOT_INLINE void store_as_a(float* row, int64_t j, Floats x) {
#if defined(INGOT_SIMD_avx512)
  if constexpr (Step::pack == 2) {
    _mm256_storeu_ps(row + j / 2, (__m256)_mm512_cvtneps_pbh((__m512)x));
    return;
  }
#endif
  store(row + j, x, AllLanes{});
}

#if defined(INGOT_SIMD_avx512)
// Stores 16 words of operand B: each holds the value of one column in two consecutive rows.
INGOT_INLINE void store_pairs(float* dst, Floats row, Floats next) {
  store_pair(reinterpret_cast<Bf16*>(dst), Pair{row, next});  // interleaves them
}
#endif

// Transposes words: dst [cols, rows] = src [rows, cols]; up to padded(rows) words of a row of dst are written.
inline void transpose(float* dst, int64_t dst_ld, const float* src, int64_t src_ld, int64_t rows, int64_t cols) {
#if defined(INGOT_SIMD_avx512)
  for (int64_t i = 0; i < rows; i += 16) {
    for (int64_t w = 0; w < cols; w += 16) {
      const auto mask = static_cast<__mmask16>(cols - w >= 16 ? 0xffff : (1 << (cols - w)) - 1);
      __m512 r[16];
      for (int j = 0; j < 16; ++j) {
        r[j] = i + j < rows ? _mm512_maskz_loadu_ps(mask, src + (i + j) * src_ld + w) : _mm512_setzero_ps();
      }
      transpose16(r);
      for (int j = 0; j < at_most(16, cols - w); ++j) _mm512_storeu_ps(dst + (w + j) * dst_ld + i, r[j]);
    }
  }
#else
  for (int64_t w = 0; w < cols; ++w) {
    for (int64_t i = 0; i < rows; ++i) dst[w * dst_ld + i] = src[i * src_ld + w];
  }
#endif
}

// y [d] = factor * x [d], rounded to y's type.
template <class E>
void write_row(E* y, const float* x, float factor, int64_t d) {
  const Floats scale = splat(factor);
  for_each_vector(0, d, [&](int64_t j, auto extent) { store(y + j, load(x + j, extent) * scale, extent); });
}

// Whether scores are more than scaled dot products (softcap, ALiBi slopes).
inline bool has_score_mod(const AttentionScores& scores) { return scores.softcap > 0 || scores.slopes != nullptr; }

// The factor that is left to be applied to dot products, after apply_score_mod() if there is a modification.
inline float score_unit(const AttentionScores& scores) { return has_score_mod(scores) ? 1.0F : scores.scale; }

constexpr float log2_e = 1.44269504F;

struct ModifiedScore {
  Floats score;
  Floats derivative;  // with respect to the scaled dot product
};

// Applies scale, softcap and ALiBi to a dot product. `distance` is the key's position minus the query's, `slope` the
// head's ALiBi slope.
INGOT_INLINE ModifiedScore apply_score_mod(const AttentionScores& scores, Floats product, Floats distance,
                                           float slope) {
  Floats score = product * scores.scale;
  Floats derivative = splat(1.0F);
  if (scores.softcap > 0) {
    const Floats tanh_score = tanh(score * (1.0F / scores.softcap));
    score = tanh_score * scores.softcap;
    derivative = fma(-tanh_score, tanh_score, derivative);
  }
  return {fma(distance, splat(slope), score), derivative};
}

// e^x, but 0 below e^-80: with ALiBi the probabilities of distant keys would be subnormal, and arithmetic on these is
// slow.
INGOT_INLINE Floats exp_or_zero(Floats x) { return x <= -80.0F ? Floats{} : exp(x); }

inline float alibi_slope(const AttentionScores& scores, int64_t head) {
  return scores.slopes == nullptr ? 0.0F : scores.slopes[head];
}

// 0, 1, 2, ...
inline Floats lane_indices() {
  Floats indices;
  for (int i = 0; i < lanes; ++i) indices[i] = static_cast<float>(i);
  return indices;
}

// The first key of the first key block that a query at `position` attends to.
inline int64_t first_block(const AttentionScores& scores, int64_t position) {
  const int64_t key = position - scores.window + 1;
  return key > 0 ? key / kBlock * kBlock : 0;
}

}  // namespace

// Defined in attention_backward.cpp; members of AttentionKernels.
void attention_delta(bool bf16, const void* dout, const void* out, float* delta, int64_t heads, int64_t head_dim,
                     int64_t row_stride, int64_t begin, int64_t end);
void attention_backward_begin(const AttentionBackward& task);
void attention_backward_queries(const AttentionBackward& task, const AttentionQueries& queries);
void attention_backward_end(const AttentionBackward& task);

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
