// Gemms of small blocks in memory, for the attention kernels. Compiled once per level.
//
// A gemm C [M, N] += A [M, K] B [K, N] has A row-major and B as a panel, both in 32-bit words: a word is one f32 or,
// for bf16 dot products, two bf16 that are consecutive along K. Every element of C is one chain of fused multiply-adds
// (or of two-term dot products, or at the level `amx` of products of up to 16 words) in the order of K, so its bits do
// not depend on M, N or the tile that it is in.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/simd.h"

#if defined(INGOT_SIMD_avx512)
#include <immintrin.h>
#endif
#if defined(INGOT_SIMD_amx)
#if !defined(INGOT_SIMD_avx512)
#error "the level amx needs INGOT_SIMD_avx512 as well"
#endif
#include "backend/cpu/amx/tile_registers.h"
#endif

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

constexpr int64_t kAlign = 16;  // columns are a multiple of this

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Step::Element is the dtype of the operands in their unpacked form; `dot` adds one word of A times a vector of words
// of B.
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

// As product(), in vectors.
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

// Registers 0 .. 3: sums of 2 x 2 blocks; 4 and 5: A; 6 and 7: B. `rows`: of A and of the sums, at most those of two
// registers; `depth`: words of a row of A.
inline TileShapes tile_shapes(int64_t rows, int64_t depth) {
  const auto upper = static_cast<uint8_t>(at_most(kTileLines, rows));
  const auto lower = static_cast<uint8_t>(rows > kTileLines ? rows - kTileLines : 1);
  const auto words = static_cast<uint8_t>(depth);
  TileShapes shapes;
  const uint8_t rows_of[8] = {upper, upper, lower, lower, upper, lower, words, words};
  for (int t = 0; t < 8; ++t) {
    shapes.rows[t] = rows_of[t];
    shapes.row_bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? 4 * words : 64);
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

// As product(), for k > 0 that is a multiple of kTileLines or less than that.
inline void tile_product(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t m,
                         int64_t n, int64_t k, bool add) {
  constexpr int64_t step = 2 * kTileLines;
  int64_t configured = 0;  // rows
  for (int64_t i = 0; i < m; i += step) {
    const int64_t rows = at_most(step, m - i);
    if (rows != configured) configure_tiles(tile_shapes(rows, at_most(kTileLines, k)));
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

// C [m, n] = or += A [m, k words] B [k words, n]; n is a multiple of kAlign; strides in words. Words of zeros at the
// end of a sum change no bit of it.
template <class Step>
void product(float* c, int64_t ldc, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t m, int64_t n,
             int64_t k, bool add) {
#if defined(INGOT_SIMD_amx)
  if constexpr (Step::pack == 2) {
    const int64_t whole = k / kTileLines * kTileLines;
    if (whole > 0) tile_product(c, ldc, a, lda, b, ldb, m, n, whole, add);
    // The rest in a tile too: in another order of additions, bits would depend on how far a sum is padded.
    if (k > whole) tile_product(c, ldc, a + whole, lda, b + whole * ldb, ldb, m, n, k - whole, add || whole > 0);
    return;
  }
#endif
  vector_product<Step>(c, ldc, a, lda, b, ldb, m, n, k, add);
}

}  // namespace
}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
