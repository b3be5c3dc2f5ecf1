// Gemms of f32 operands of any layout and alignment, without matrix instructions: tiles of 64 x 64, of which a thread
// has 4 x 4 elements, 16 apart. Sums run over k in order, without split-k, so that the bits of a row or a column depend
// on k only.
#pragma once

#include "backend/gpu/gemm/gemm.h"
#include "backend/gpu/number.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::gpu {

void multiply_f32(ops::Context& context, const Gemm& product);

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

constexpr int f32_tile = 64;   // rows of a and columns of b per block
constexpr int f32_depth = 16;  // columns of k per stage

struct F32Tiles {
  float a[f32_depth][f32_tile + 1];
  float b[f32_depth][f32_tile + 1];
};

// Computes the tile of c at (row_block, column_block). read_b(line, at) returns element `at` of stored row `line` of b.
template <class ReadB>
GPU_FN void multiply_f32_tile(const Gemm& a, int64_t row_block, int64_t column_block, ReadB read_b) {
  constexpr int tile = f32_tile, depth = f32_depth;
  GPU_SHARED(F32Tiles, shared);
  const int64_t first_row = row_block * tile;
  const int64_t first_column = column_block * tile;
  const int row = thread_index() / 16;
  const int column = thread_index() % 16;
  const auto* from_a = static_cast<const float*>(a.a);
  float sums[4][4] = {};
  for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
    for (int index = thread_index(); index < tile * depth; index += 256) {
      // Coalesced: adjacent threads read adjacent addresses in either layout.
      const int i = a.transpose_a ? index % tile : index / depth;
      const int k = a.transpose_a ? index / tile : index % depth;
      const int64_t r = first_row + i;
      const bool inside = r < a.m && k0 + k < a.k;
      shared.a[k][i] = inside ? from_a[a.transpose_a ? (k0 + k) * a.lda + r : r * a.lda + k0 + k] : 0.0F;
    }
    for (int index = thread_index(); index < tile * depth; index += 256) {
      const int j = a.transpose_b ? index / depth : index % tile;
      const int k = a.transpose_b ? index % depth : index / tile;
      const int64_t c = first_column + j;
      const bool inside = c < a.n && k0 + k < a.k;
      shared.b[k][j] = inside ? a.transpose_b ? read_b(c, k0 + k) : read_b(k0 + k, c) : 0.0F;
    }
    block_barrier();
    for (int k = 0; k < depth; ++k) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        GPU_UNROLL
        for (int j = 0; j < 4; ++j)
          sums[i][j] = fma(shared.a[k][row + 16 * i], shared.b[k][column + 16 * j], sums[i][j]);
      }
    }
    block_barrier();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int64_t r = first_row + row + 16 * i;
      const int64_t c = first_column + column + 16 * j;
      if (r < a.m && c < a.n) store_sum<Bf16, 1>(a.c, a.addend, a.out == DType::f32, r * a.ldc + c, {sums[i][j]});
    }
  }
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
