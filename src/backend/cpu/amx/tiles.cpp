#include "backend/cpu/amx/tiles.h"

#include <immintrin.h>

// The rules of simd/levels.h for the levels' source files apply here too.
#if defined(__clang__)
#define INGOT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define INGOT_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ingot::cpu::amx {
namespace {

// Tile registers: 0 .. 3 for sums, 4 and 5 for the left operand, 6 and 7 for the right one; all 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfiguration configuration;
constexpr int64_t row_bytes = 64;

// Transposes 16 x 16 words.
inline __attribute__((always_inline)) void transpose(__m512i (&x)[16]) {
  __m512i y[16];
  INGOT_UNROLL
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  INGOT_UNROLL
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // Now x[4 q + c] holds columns c, c + 4, c + 8 and c + 12 of rows 4 q .. 4 q + 3.
  INGOT_UNROLL
  for (int c = 0; c < 4; ++c) {
    y[c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
    y[4 + c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
    y[8 + c] = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
    y[12 + c] = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
  }
  INGOT_UNROLL
  for (int c = 0; c < 4; ++c) {
    x[c] = _mm512_shuffle_i32x4(y[c], y[8 + c], 0x88);
    x[8 + c] = _mm512_shuffle_i32x4(y[c], y[8 + c], 0xdd);
    x[4 + c] = _mm512_shuffle_i32x4(y[4 + c], y[12 + c], 0x88);
    x[12 + c] = _mm512_shuffle_i32x4(y[4 + c], y[12 + c], 0xdd);
  }
}

// Mask of the first `count` of 32 or 16 lanes; all lanes if count is larger.
__mmask32 first32(int64_t count) { return count >= 32 ? ~0U : (1U << count) - 1; }
__mmask16 first16(int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1); }

// Loads the tile at (line, k) as words that are pairs of k: load_by_line, for contiguous k, as [line] [pair];
// load_by_pair as [pair] [line].
inline __attribute__((always_inline)) void load_by_line(__m512i (&x)[16], const Lines& s, int64_t line, int64_t k) {
  const __mmask32 present = first32(s.k - k);
  const Bf16* data = s.data + line * s.line_step + k;
  INGOT_UNROLL
  for (int64_t i = 0; i < 16; ++i) {
    x[i] = line + i < s.count ? _mm512_maskz_loadu_epi16(present, data + i * s.line_step) : _mm512_setzero_si512();
  }
}
inline __attribute__((always_inline)) void load_by_pair(__m512i (&x)[16], const Lines& s, int64_t line, int64_t k) {
  const __mmask16 present = first16(s.count - line);
  const Bf16* data = s.data + line + k * s.k_step;
  const auto row = [&](int64_t i) {
    return k + i < s.k ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, data + i * s.k_step))
                       : _mm512_setzero_si512();
  };
  INGOT_UNROLL
  for (int64_t i = 0; i < 16; ++i) x[i] = _mm512_or_si512(row(2 * i), _mm512_slli_epi32(row(2 * i + 1), 16));
}

inline __attribute__((always_inline)) void store_tile(Bf16* packed, const __m512i (&x)[16]) {
  INGOT_UNROLL
  for (int i = 0; i < 16; ++i) _mm512_store_si512(packed + i * 32, x[i]);
}

// Reads memory in storage order.
template <bool left>
void pack(Bf16* packed, const Lines& s) {
  __m512i x[16];
  if (s.k_step == 1) {
    for (int64_t line = 0; line < s.count; line += tile_lines) {
      for (int64_t k = 0; k < s.k; k += tile_k) {
        load_by_line(x, s, line, k);
        if (!left) transpose(x);
        store_tile(packed, x);
        packed += tile_operands;
      }
    }
    return;
  }
  const int64_t panel = (s.k + tile_k - 1) / tile_k * tile_operands;
  for (int64_t k = 0; k < s.k; k += tile_k) {
    for (int64_t line = 0; line < s.count; line += tile_lines) {
      load_by_pair(x, s, line, k);
      if (left) transpose(x);
      store_tile(packed + line / tile_lines * panel + k / tile_k * tile_operands, x);
    }
  }
}

// Destination of up to 2 x 2 tiles of sums: tile (i, j) at data + i * row + j * column, its rows `bytes` apart.
struct Sums {
  float* data;
  int64_t row, column;
  int64_t bytes;
};

// Prefetch of the right operand's next tiles during the computation: `lines` cache lines of a panel per step.
struct Ahead {
  const Bf16* data;
  int64_t lines;
};

// Adds `steps` tiles of k to rows x columns tiles of sums; tile (i, j) is loaded from `from` + (j * from_column + i)
// tiles, or starts at zero if `from` is null.
template <int rows, int columns>
void tiles(const float* from, int64_t from_column, const Sums& to, const Bf16* left, const Bf16* right, int64_t panel,
           int64_t steps, Ahead ahead) {
  if (from != nullptr) {
    _tile_loadd(0, from, row_bytes);
    if constexpr (columns > 1) _tile_loadd(1, from + from_column * tile_sums, row_bytes);
    if constexpr (rows > 1) _tile_loadd(2, from + tile_sums, row_bytes);
    if constexpr (rows > 1 && columns > 1) _tile_loadd(3, from + (from_column + 1) * tile_sums, row_bytes);
  } else {
    _tile_zero(0);
    if constexpr (columns > 1) _tile_zero(1);
    if constexpr (rows > 1) _tile_zero(2);
    if constexpr (rows > 1 && columns > 1) _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t line = 0; line < ahead.lines; ++line) {
      _mm_prefetch(ahead.data, _MM_HINT_T1);
      if constexpr (columns > 1) _mm_prefetch(ahead.data + panel, _MM_HINT_T1);
      ahead.data += row_bytes / 2;
    }
    _tile_loadd(6, right, row_bytes);
    _tile_stream_loadd(4, left, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (columns > 1) {
      _tile_loadd(7, right + panel, row_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (rows > 1) {
      _tile_stream_loadd(5, left + panel, row_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (rows > 1 && columns > 1) _tile_dpbf16ps(3, 5, 7);
    left += tile_operands;
    right += tile_operands;
  }
  _tile_stored(0, to.data, to.bytes);
  if constexpr (columns > 1) _tile_stored(1, to.data + to.column, to.bytes);
  if constexpr (rows > 1) _tile_stored(2, to.data + to.row, to.bytes);
  if constexpr (rows > 1 && columns > 1) _tile_stored(3, to.data + to.row + to.column, to.bytes);
}

// Writes the first `count` of 32 consecutive elements of c; x holds the first 16, y the others.
inline __attribute__((always_inline)) void write_line(const Result& result, int64_t place, __m512 x, __m512 y,
                                                      int64_t count) {
  const __mmask32 present = first32(count);
  if (result.c_float != nullptr) {
    float* c = result.c_float + place;
    const auto low = static_cast<__mmask16>(present);
    const auto high = static_cast<__mmask16>(present >> 16);
    if (result.accumulate) {
      x = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), x);
      y = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + 16), y);
    }
    _mm512_mask_storeu_ps(c, low, x);
    _mm512_mask_storeu_ps(c + 16, high, y);
  } else {
    Bf16* c = result.c_bf16 + place;
    if (result.accumulate) {
      const __m512i bits = _mm512_maskz_loadu_epi16(present, c);
      const auto widened = [](__m256i half) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
      };
      x = _mm512_add_ps(widened(_mm512_castsi512_si256(bits)), x);
      y = _mm512_add_ps(widened(_mm512_extracti64x4_epi64(bits, 1)), y);
    }
    _mm512_mask_storeu_epi16(c, present, (__m512i)_mm512_cvtne2ps_pbh(y, x));
  }
}

// Writes up to 2 x 2 finished tiles, tile (i, j) at `sums` + (j * left_tiles + i) tiles, to the result, starting at its
// element (row, column).
void write(const Result& result, const float* sums, int64_t left_tiles, int64_t rows, int64_t columns, int64_t row,
           int64_t column) {
  const auto line = [](const float* at) { return _mm512_load_ps(at); };
  if (!result.transposed) {
    for (int64_t i = 0; i < rows * tile_lines && row + i < result.rows; ++i) {
      const float* own = sums + i * 16;
      const __m512 other = columns > 1 ? line(own + left_tiles * tile_sums) : _mm512_setzero_ps();
      write_line(result, (row + i) * result.c_row + column, line(own), other, result.columns - column);
    }
    return;
  }
  for (int64_t j = 0; j < columns; ++j) {
    __m512i x[16];
    __m512i y[16] = {};
    const float* own = sums + j * left_tiles * tile_sums;
    for (int i = 0; i < 16; ++i) x[i] = _mm512_load_si512(own + i * 16);
    transpose(x);
    if (rows > 1) {
      for (int i = 0; i < 16; ++i) y[i] = _mm512_load_si512(own + tile_sums + i * 16);
      transpose(y);
    }
    const int64_t first = column + j * tile_lines;
    for (int64_t i = 0; i < 16 && first + i < result.columns; ++i) {
      write_line(result, (first + i) * result.c_row + row, _mm512_castsi512_ps(x[i]), _mm512_castsi512_ps(y[i]),
                 result.rows - row);
    }
  }
}

// Prefetches the lines of c that 2 x 2 tiles will be written to; they are far apart and rarely in a cache.
void fetch(const Result& result, int64_t row, int64_t column) {
  const int64_t rows = result.transposed ? result.columns - column : result.rows - row;
  const int64_t place = result.transposed ? column * result.c_row + row : row * result.c_row + column;
  for (int64_t i = 0; i < 2 * tile_lines && i < rows; ++i) {
    const int64_t own = place + i * result.c_row;
    if (result.c_float != nullptr) {
      __builtin_prefetch(result.c_float + own, 1);
      __builtin_prefetch(result.c_float + own + tile_lines, 1);
    } else {
      __builtin_prefetch(result.c_bf16 + own, 1);
    }
  }
}

// Tiles of k per step, so that the right operand's tiles stay in L1 while the left one's are streamed.
constexpr int64_t k_block = 16;

// One or two columns of right tiles times all left tiles.
template <int columns>
void column(float* sums, const Bf16* left, int64_t left_tiles, const Bf16* right, int64_t right_tile, int64_t k_tiles,
            bool begin, const Result* result) {
  const int64_t panel = k_tiles * tile_operands;
  int64_t waiting = -1;  // left tile whose finished sums are not written yet; -1: none
  const auto write_waiting = [&] {
    write(*result, sums + waiting * tile_sums, left_tiles, left_tiles - waiting < 2 ? 1 : 2, columns,
          waiting * tile_lines, right_tile * tile_lines);
  };
  for (int64_t k = 0; k < k_tiles; k += k_block) {
    const int64_t steps = k_tiles - k < k_block ? k_tiles - k : k_block;
    const bool first = begin && k == 0;
    const int64_t pairs = (left_tiles + 1) / 2;
    const int64_t ahead_lines = (tile_lines + pairs - 1) / pairs;
    const Bf16* ahead = k + steps < k_tiles ? right + (k + steps) * tile_operands : right + columns * panel;
    const bool last = result != nullptr && k + steps == k_tiles;
    for (int64_t i = 0; i < left_tiles; i += 2) {
      const int64_t rows = left_tiles - i < 2 ? left_tiles - i : 2;
      float* own = sums + i * tile_sums;
      const int64_t row = i * tile_lines;
      const int64_t first_column = right_tile * tile_lines;
      const bool direct = last && result->c_float != nullptr && !result->accumulate && !result->transposed &&
                          row + rows * tile_lines <= result->rows &&
                          first_column + columns * tile_lines <= result->columns;
      const Sums to = direct ? Sums{result->c_float + row * result->c_row + first_column, tile_lines * result->c_row,
                                    tile_lines, result->c_row * 4}
                             : Sums{own, tile_sums, left_tiles * tile_sums, row_bytes};
      if (last) fetch(*result, row, first_column);
      const auto run = rows == 2 ? tiles<2, columns> : tiles<1, columns>;
      run(first ? nullptr : own, left_tiles, to, left + i * panel + k * tile_operands, right + k * tile_operands, panel,
          steps, {ahead + i / 2 * steps * ahead_lines * 32, ahead_lines});
      // The previous sums are written while these are still being computed.
      if (waiting >= 0) write_waiting();
      waiting = last && !direct ? i : -1;
    }
    if (waiting >= 0) write_waiting();
    waiting = -1;
  }
}

}  // namespace

void pack_left(Bf16* packed, const Lines& lines) { pack<true>(packed, lines); }
void pack_right(Bf16* packed, const Lines& lines) { pack<false>(packed, lines); }

void multiply(float* sums, const Bf16* left, int64_t left_tiles, const Bf16* right, int64_t right_tiles,
              int64_t k_tiles, bool begin, const Result* result) {
  _tile_loadconfig(&configuration);
  const bool kept = !begin || result == nullptr;
  const int64_t panel = k_tiles * tile_operands;
  for (int64_t j = 0; j < right_tiles; j += 2) {
    float* own = kept ? sums + j * left_tiles * tile_sums : sums;
    const auto run = right_tiles - j >= 2 ? column<2> : column<1>;
    run(own, left, left_tiles, right + j * panel, j, k_tiles, begin, result);
  }
  _tile_release();  // the kernel need not save the tile state of this thread
}

double tile_dot_products(int64_t rounds, float* result) {
  _tile_loadconfig(&configuration);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, result, row_bytes);
  _tile_release();
  return 4.0 * 2 * tile_lines * tile_lines * tile_k * static_cast<double>(rounds);
}

}  // namespace ingot::cpu::amx
