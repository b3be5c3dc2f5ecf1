// What the tiled tensor-core gemms share: blocks of 256 threads, whose warps cover the block's tile as 2 x 4 (32 lanes)
// or 2 x 2 (64 lanes). Kernel passes only.
#pragma once

#include "backend/gpu/number.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr int tile_threads = 256;

// A warp's accumulators for its part of a rows x columns block tile.
template <int rows, int columns>
struct WarpSums {
  static constexpr int warps_n = tile_threads / warp_width / 2;
  static constexpr int tiles_m = rows / 2 / 16;
  static constexpr int tiles_n = columns / warps_n / 16;

  MmaAccumulator at[tiles_m][tiles_n] = {};

  // Position of the warp's first element in the block's tile.
  GPU_FN static int row() { return warp_index() / warps_n * (rows / 2); }
  GPU_FN static int column() { return warp_index() % warps_n * (columns / warps_n); }

  // Calls store(row, column, Floats<count>) for all of the warp's sums, `count` adjacent ones of a row at a time; count
  // is 1 or mma_neighbours.
  template <int count, class Store>
  GPU_FN void for_each(Store store) const {
    GPU_UNROLL
    for (int i = 0; i < tiles_m; ++i) {
      GPU_UNROLL
      for (int j = 0; j < tiles_n; ++j) {
        GPU_UNROLL
        for (int e = 0; e < MmaAccumulator::count; e += count) {
          Floats<count> values;
          GPU_UNROLL
          for (int x = 0; x < count; ++x) values.at[x] = at[i][j].at[e + x];
          store(row() + i * 16 + mma_row(e), column() + j * 16 + mma_column(e), values);
        }
      }
    }
  }
};

}  // namespace ingot::gpu::GPU_TARGET
#endif
