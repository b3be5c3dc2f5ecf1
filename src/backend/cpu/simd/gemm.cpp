// The blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3),
// 2008: a panel of b and a block of a are packed (and widened to fp32), and a register tile iterates over them.
#include "backend/cpu/simd/gemm.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

#if defined(__AVX512F__)
constexpr int tile_m = 8, tile_v = 3;  // 24 sums, 3 of b, 1 of a: of 32 registers
#elif defined(__AVX2__)
constexpr int tile_m = 6, tile_v = 2;  // 12 + 2 + 1 of 16
#elif defined(__aarch64__)
constexpr int tile_m = 8, tile_v = 2;
#else
constexpr int tile_m = 4, tile_v = 2;
#endif
constexpr int tile_n = tile_v * lanes;
static_assert(gemm_n_block % tile_n == 0 && gemm_m_block % tile_m == 0, "packed blocks are whole panels");

// Packs `count` lines of k elements into panels of `width` lines: panel, then k, then line; missing lines are zero.
template <int width, class T>
void pack_lines(float* packed, const T* source, int64_t line_step, int64_t k_step, int64_t count, int64_t k) {
  for (int64_t first = 0; first < count; first += width) {
    const int64_t present = count - first < width ? count - first : width;
    const T* lines = source + first * line_step;
    if (line_step == 1 && present == width) {
      for (int64_t i = 0; i < k; ++i) {
        if constexpr (width % lanes == 0) {
          for (int v = 0; v < width; v += lanes)
            store(packed + v, load(lines + i * k_step + v, AllLanes{}), AllLanes{});
        } else {
          for (int line = 0; line < width; ++line) packed[line] = widen(lines[i * k_step + line]);
        }
        packed += width;
      }
    } else if (present == width) {
      for (int64_t i = 0; i < k; ++i) {
        for (int line = 0; line < width; ++line) packed[line] = widen(lines[line * line_step + i * k_step]);
        packed += width;
      }
    } else {
      for (int64_t i = 0; i < k; ++i) {
        for (int line = 0; line < width; ++line) {
          packed[line] = line < present ? widen(lines[line * line_step + i * k_step]) : 0.0F;
        }
        packed += width;
      }
    }
  }
}

// sums [tile_m, tile_n] = a panel times b panel over k.
INGOT_INLINE void tile(const float* a, const float* b, int64_t k, Floats (&sums)[tile_m][tile_v]) {
  for (int i = 0; i < tile_m; ++i) {
    for (int v = 0; v < tile_v; ++v) sums[i][v] = Floats{};
  }
  for (int64_t p = 0; p < k; ++p) {
    Floats right[tile_v];
    INGOT_UNROLL
    for (int v = 0; v < tile_v; ++v) right[v] = load(b + v * lanes, AllLanes{});
    INGOT_UNROLL
    for (int i = 0; i < tile_m; ++i) {
      const Floats left = splat(a[i]);
      INGOT_UNROLL
      for (int v = 0; v < tile_v; ++v) sums[i][v] = fma(left, right[v], sums[i][v]);
    }
    a += tile_m;
    b += tile_n;
  }
}

// Writes one tile to rows x columns of `c`; with `add` it is added.
void store_tile(float* c, int64_t c_row, int64_t rows, int64_t columns, const float* a, const float* b, int64_t k,
                bool add) {
  Floats sums[tile_m][tile_v];
  tile(a, b, k, sums);
  if (rows == tile_m && columns == tile_n) {
    for (int i = 0; i < tile_m; ++i) {
      for (int v = 0; v < tile_v; ++v) {
        float* out = c + i * c_row + v * lanes;
        store(out, add ? load(out, AllLanes{}) + sums[i][v] : sums[i][v], AllLanes{});
      }
    }
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    float line[tile_n];
    for (int v = 0; v < tile_v; ++v) store(line + v * lanes, sums[i][v], AllLanes{});
    for (int64_t j = 0; j < columns; ++j) c[i * c_row + j] = add ? c[i * c_row + j] + line[j] : line[j];
  }
}

// c [m, n] (+)= a b for n <= gemm_n_block, in fp32.
template <class T>
void multiply_panel(const GemmShape& s, int64_t n, float* c, int64_t c_row, const T* a, const T* b, float* packed_a,
                    float* packed_b, bool accumulate) {
  if (s.k == 0 && !accumulate) {
    for (int64_t i = 0; i < s.m; ++i)
      for_each_vector(0, n, [&](int64_t e, auto extent) { store(c + i * c_row + e, Floats{}, extent); });
  }
  for (int64_t k0 = 0; k0 < s.k; k0 += gemm_k_block) {
    const int64_t k = s.k - k0 < gemm_k_block ? s.k - k0 : gemm_k_block;
    const bool add = accumulate || k0 > 0;
    pack_lines<tile_n>(packed_b, b + k0 * s.b_row, s.b_column, s.b_row, n, k);
    for (int64_t i0 = 0; i0 < s.m; i0 += gemm_m_block) {
      const int64_t m = s.m - i0 < gemm_m_block ? s.m - i0 : gemm_m_block;
      pack_lines<tile_m>(packed_a, a + i0 * s.a_row + k0 * s.a_column, s.a_row, s.a_column, m, k);
      for (int64_t j = 0; j < n; j += tile_n) {
        for (int64_t i = 0; i < m; i += tile_m) {
          store_tile(c + (i0 + i) * c_row + j, c_row, m - i < tile_m ? m - i : tile_m, n - j < tile_n ? n - j : tile_n,
                     packed_a + i * k, packed_b + j * k, k, add);
        }
      }
    }
  }
}

template <class T>
void gemm_f32(const GemmShape& s, float* c, const T* a, const T* b, float* pack) {
  float* packed_b = pack + gemm_m_block * gemm_k_block;
  for (int64_t j = 0; j < s.n; j += gemm_n_block) {
    const int64_t n = s.n - j < gemm_n_block ? s.n - j : gemm_n_block;
    multiply_panel(s, n, c + j, s.c_row, a, b + j * s.b_column, pack, packed_b, s.accumulate);
  }
}

// The sums of a block of c stay in fp32 until all of k is processed.
template <class C, class T>
void gemm_rounded(const GemmShape& s, C* c, const T* a, const T* b, float* pack) {
  float* packed_b = pack + gemm_m_block * gemm_k_block;
  float* block = packed_b + gemm_n_block * gemm_k_block;
  for (int64_t i = 0; i < s.m; i += gemm_max_m) {
    GemmShape row_block = s;
    row_block.m = s.m - i < gemm_max_m ? s.m - i : gemm_max_m;
    for (int64_t j = 0; j < s.n; j += gemm_n_block) {
      const int64_t n = s.n - j < gemm_n_block ? s.n - j : gemm_n_block;
      multiply_panel(row_block, n, block, gemm_n_block, a + i * s.a_row, b + j * s.b_column, pack, packed_b, false);
      for (int64_t row = 0; row < row_block.m; ++row) {
        C* out = c + (i + row) * s.c_row + j;
        const float* sums = block + row * gemm_n_block;
        for_each_vector(0, n, [&](int64_t e, auto extent) {
          const Floats x = load(sums + e, extent);
          store(out + e, s.accumulate ? load(out + e, extent) + x : x, extent);
        });
      }
    }
  }
}

}  // namespace

const GemmKernels gemm_kernels = {gemm_f32<float>,          gemm_f32<Bf16>, gemm_rounded<Bf16, float>,
                                  gemm_rounded<Bf16, Bf16>, gemm_f32<F16>,  gemm_rounded<F16, F16>};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
