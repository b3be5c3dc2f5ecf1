// A sum is a vector of partial sums, as in skinny_gemm.cpp, and in the same order: a step has 32 elements of k, of
// which the second of each pair are multiplied first. So both operands are widened to vectors of these and of the
// others. The rows of x of a tile stay in L1, while those of w are read from L2.
#include "backend/cpu/simd/widened_gemm.h"

#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/tile_outputs.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

#if defined(__AVX512BF16__)
namespace {

constexpr int max_tokens = widened_gemm_tokens, tile_rows = widened_gemm_tile_rows;
constexpr int64_t step = 2 * lanes;
static_assert(lanes == widened_gemm_lanes && widened_gemm_depth % step == 0);
static_assert(widened_gemm_group % max_tokens == 0 && widened_gemm_rows % tile_rows == 0);

int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

INGOT_MASKED Words load_step(const Bf16* p, int64_t count) {
  const __mmask32 present = count < step ? (__mmask32)((1U << count) - 1U) : ~(__mmask32)0;
  return (Words)_mm512_maskz_loadu_epi16(present, p);
}

// to [steps of k, 2, rows, lanes] = the first `count` of `rows` rows of k elements, zeros for the others and after k.
// Rows are `stride` elements apart.
void widen(float* to, const Bf16* from, int64_t stride, int64_t rows, int64_t count, int64_t k) {
  for (int64_t row = 0; row < rows; ++row) {
    float* at = to + row * lanes;
    for (int64_t i = 0; i < k; i += step, at += 2 * rows * lanes) {
      const Words pairs = row < count ? load_step(from + row * stride + i, k - i) : Words{};
      store(at, floats(pairs & 0xffff0000U), AllLanes{});
      store(at + rows * lanes, floats(pairs << 16), AllLanes{});
    }
  }
}

// A part of the sums: `vectors` of each of the widened rows, which are multiplied one after the other.
struct Part {
  int64_t vectors;
  bool begins, ends;
};

// tokens x tile_rows sums. They go on from those at `partial`, or are stored there; complete ones go into `count` rows
// of y.
template <int tokens>
void tile(const Outputs<Bf16>& y, const float* x, const float* w, const Part& part, float* partial, int64_t token,
          int64_t row, int64_t count) {
  Floats sums[tokens][tile_rows];
  INGOT_UNROLL
  for (int t = 0; t < tokens; ++t) {
    INGOT_UNROLL
    for (int r = 0; r < tile_rows; ++r) {
      sums[t][r] = part.begins ? Floats{} : load(partial + (t * tile_rows + r) * lanes, AllLanes{});
    }
  }
  for (int64_t v = 0; v < part.vectors; ++v) {
    Floats right[tile_rows];
    INGOT_UNROLL
    for (int r = 0; r < tile_rows; ++r) right[r] = load(w + r * lanes, AllLanes{});
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) {
      const Floats left = load(x + t * lanes, AllLanes{});
      INGOT_UNROLL
      for (int r = 0; r < tile_rows; ++r) sums[t][r] = fma(left, right[r], sums[t][r]);
    }
    x += tokens * lanes;
    w += tile_rows * lanes;
  }
  if (!part.ends) {
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) {
      INGOT_UNROLL
      for (int r = 0; r < tile_rows; ++r) store(partial + (t * tile_rows + r) * lanes, sums[t][r], AllLanes{});
    }
    return;
  }
  if (count >= tile_rows) return store_tile(y, sums, token, row);
  for (int t = 0; t < tokens; ++t) {
    const Four four = sum_four(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
    for (int r = 0; r < count; ++r) store_one(y, token + t, row + r, four[r]);
  }
}

template <int max>
void tile_of(int64_t tokens, const Outputs<Bf16>& y, const float* x, const float* w, const Part& part, float* partial,
             int64_t token, int64_t row, int64_t count) {
  if (tokens == max) return tile<max>(y, x, w, part, partial, token, row, count);
  if constexpr (max > 1) tile_of<max - 1>(tokens, y, x, w, part, partial, token, row, count);
}

}  // namespace

void widened_gemm(float* y_float, Bf16* y_typed, int64_t y_row, const Bf16* x, const Bf16* w, int64_t tokens,
                  int64_t rows, int64_t k, bool accumulate, float* pack) {
  const Outputs<Bf16> y{y_float, y_typed, y_row, accumulate};
  float* const wide_x = pack;
  float* const wide_w = wide_x + max_tokens * widened_gemm_depth;
  float* const partial = wide_w + widened_gemm_weights;
  // Parts of k of about the same size.
  const int64_t parts = k > widened_gemm_depth ? (k + widened_gemm_depth - 1) / widened_gemm_depth : 1;
  const int64_t steps = (k + step * parts - 1) / (step * parts), depth = steps * step;
  const int64_t fitting = widened_gemm_weights / (steps > 0 ? depth : step) / tile_rows * tile_rows;
  const int64_t span = parts == 1 ? fitting : at_most(fitting, widened_gemm_rows);
  const int64_t group = parts == 1 ? tokens : widened_gemm_group;
  for (int64_t row = 0; row < rows; row += span) {
    const int64_t row_end = at_most(row + span, rows);
    for (int64_t first = 0; first < tokens; first += group) {
      const int64_t token_end = at_most(first + group, tokens);
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t begin = p * depth, length = at_most(depth, k - begin);
        const Part part{(length + step - 1) / step * 2, p == 0, p == parts - 1};
        const int64_t quad = tile_rows * depth;  // elements of tile_rows widened rows
        for (int64_t r = row; r < row_end; r += tile_rows) {
          widen(wide_w + (r - row) / tile_rows * quad, w + r * k + begin, k, tile_rows, rows - r, length);
        }
        float* sums = partial;
        for (int64_t token = first; token < token_end; token += max_tokens) {
          const int64_t count = at_most(max_tokens, token_end - token);
          widen(wide_x, x + token * k + begin, k, count, count, length);
          for (int64_t r = row; r < row_end; r += tile_rows) {
            tile_of<max_tokens>(count, y, wide_x, wide_w + (r - row) / tile_rows * quad, part, sums, token, r,
                                rows - r);
            if (parts > 1) sums += max_tokens * tile_rows * lanes;
          }
        }
      }
    }
  }
}
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
