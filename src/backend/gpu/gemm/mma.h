// The matrix tile functions of gpu.h that are derived from each target's primitives. Included by gpu.h only.
#pragma once

namespace ingot::gpu::GPU_TARGET {

template <class T>
GPU_FN MmaA mma_load_a(const T* tile, int stride) {
  return mma_load_a([=](int row, int k) { return tile + row * stride + k; });
}
template <class T>
GPU_FN MmaB mma_load_b(const T* tile, int stride) {
  return mma_load_b([=](int column, int k) { return tile + column * stride + k; });
}

template <class Tile, int columns>
struct MmaTiles {
  Tile at[columns / mma_k];
};
using MmaLongA = MmaTiles<MmaA, 32>;
using MmaLongB = MmaTiles<MmaB, 32>;
using MmaDeepA = MmaTiles<MmaA, mma_deep>;
using MmaDeepB = MmaTiles<MmaB, mma_deep>;

// Builds operand tiles from the 16-byte chunks that a lane loads. If all chunks are of one row they are the tiles as
// they are. With two rows (mma.sync) a tile has four words: `row_step` is the distance in words from one row to the
// other, 3 - row_step that from the lower half of its columns to the upper.
template <class Tiles, int row_step, class Piece>
GPU_FN Tiles mma_tiles_of(Piece piece) {
  constexpr int pieces = static_cast<int>(sizeof(Tiles) / 16);
  struct {
    Bytes16 at[pieces];
  } mine;
  GPU_UNROLL
  for (int p = 0; p < pieces; ++p) mine.at[p] = __builtin_bit_cast(Bytes16, piece(mma_piece_row(p), mma_piece(p)));
  if constexpr (mma_lane_rows == 2) {
    const auto given = mine;
    GPU_UNROLL
    for (int w = 0; w < 4; ++w) {
      GPU_UNROLL
      for (int p = 0; p < 2; ++p) mine.at[w / 2].at[p * row_step + w % 2 * (3 - row_step)] = given.at[p].at[w];
    }
  }
  return __builtin_bit_cast(Tiles, mine);
}
template <class Piece>
GPU_FN MmaLongA mma_long_a(Piece piece) {
  return mma_tiles_of<MmaLongA, 1>(piece);
}
template <class Piece>
GPU_FN MmaLongB mma_long_b(Piece piece) {
  return mma_tiles_of<MmaLongB, 2>(piece);
}

template <class At>
GPU_FN MmaDeepA mma_load_deep_a(At at) {
  if constexpr (mma_deep == 32) {
    return mma_long_a([=](int row, int p) { return *reinterpret_cast<const Bytes16*>(at(row, 8 * p)); });
  } else {
    return {{mma_load_a(at)}};
  }
}
template <class At>
GPU_FN MmaDeepB mma_load_deep_b(At at) {
  if constexpr (mma_deep == 32) {
    return mma_long_b([=](int column, int p) { return *reinterpret_cast<const Bytes16*>(at(column, 8 * p)); });
  } else {
    return {{mma_load_b(at)}};
  }
}

}  // namespace ingot::gpu::GPU_TARGET
