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

// Builds operand tiles from the 16-byte chunks that a lane loads. If a lane has one row, the chunks are the tiles. If
// it has two rows (mma.sync), words are permuted: of the four words of a tile, `row_step` is the distance from one row
// to the other, and 3 - row_step that from the lower half of the columns to the upper half.
template <class Tiles, int row_step, class LoadChunk>
GPU_FN Tiles mma_tiles_of(LoadChunk chunk) {
  constexpr int chunks = static_cast<int>(sizeof(Tiles) / 16);
  struct {
    Bytes16 at[chunks];
  } loaded;
  GPU_UNROLL
  for (int p = 0; p < chunks; ++p) loaded.at[p] = __builtin_bit_cast(Bytes16, chunk(mma_chunk_row(p), mma_chunk(p)));
  if constexpr (mma_lane_rows == 2) {
    const auto unpermuted = loaded;
    GPU_UNROLL
    for (int w = 0; w < 4; ++w) {
      GPU_UNROLL
      for (int p = 0; p < 2; ++p) loaded.at[w / 2].at[p * row_step + w % 2 * (3 - row_step)] = unpermuted.at[p].at[w];
    }
  }
  return __builtin_bit_cast(Tiles, loaded);
}
template <class LoadChunk>
GPU_FN MmaLongA mma_long_a(LoadChunk chunk) {
  return mma_tiles_of<MmaLongA, 1>(chunk);
}
template <class LoadChunk>
GPU_FN MmaLongB mma_long_b(LoadChunk chunk) {
  return mma_tiles_of<MmaLongB, 2>(chunk);
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
