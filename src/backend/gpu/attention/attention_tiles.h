// What the tensor-core attention kernels share: tiles of T (bf16, or f16 in forward kernels) in shared memory, how they
// are loaded, gemms of 16-row operands with them, and scores. Kernel passes only.
#pragma once

#include "backend/gpu/attention/attention_args.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr float log2_e = 1.44269504F;
inline constexpr float ln_2 = 0.693147181F;
GPU_FN float infinity() { return bits_of<float>(0x7f800000); }

// A [rows][D] tile in shared memory. XOR swizzle: the 16-byte chunks of row r are permuted by r % 8, so that the 8 rows
// that a matrix load (ldmatrix) reads at once, and the 8 chunks that a copy writes, lie in different banks, without
// padding.
template <class T, int D>
struct Tile {
  T* base;
  GPU_FN T* at(int row, int column) const { return base + row * D + (column ^ opaque_value(row % 8 * 8)); }
  GPU_FN Tile from_row(int row) const { return {base + row * D}; }  // `row` is a multiple of 8
};

// Rows of a matrix in global memory: element (r, c) is at base[r * stride + c]. Reads as zeros where there is no row,
// before row 0 and from row `end` on, and from column d on.
template <class T>
struct Source {
  const T* base;
  int64_t stride;
  int end;
  int d;
};
// Whether 0 <= row < end, for end >= 0.
GPU_FN bool is_row(int row, int end) { return static_cast<uint32_t>(row) < static_cast<uint32_t>(end); }

// An asynchronous copy of `rows` rows into a tile by all `threads` threads of the block.
template <class T, int rows, int D, int threads>
struct TileCopy {
  static constexpr int row_chunks = D / 8;  // 16-byte chunks per row
  static constexpr int count = rows * row_chunks / threads;
  static_assert(rows * row_chunks % threads == 0);
  AsyncCopies<count> copies;

  // `To`: a tile, by its function at(row, column).
  template <class To = Tile<T, D>>
  GPU_FN void begin(const To& to, const Source<T>& from, int first) {
    const int column = thread_index() % row_chunks * 8;
    GPU_UNROLL_COPIES
    for (int i = 0; i < count; ++i) {
      const int row = thread_index() / row_chunks + i * (threads / row_chunks);
      const bool valid = is_row(first + row, from.end) && column < from.d;
      copies.begin(i, to.at(row, column), from.base + (valid ? (first + row) * from.stride + column : 0), valid);
    }
    copies.commit();
  }
  // Row r of the tile is read from base[offset(r)] on; a negative offset means a row of zeros.
  template <class Offset>
  GPU_FN void begin_at(const Tile<T, D>& to, const T* base, int d, Offset offset) {
    const int column = thread_index() % row_chunks * 8;
    GPU_UNROLL_COPIES
    for (int i = 0; i < count; ++i) {
      const int row = thread_index() / row_chunks + i * (threads / row_chunks);
      const int64_t from = offset(row);
      const bool valid = from >= 0 && column < d;
      copies.begin(i, to.at(row, column), base + (valid ? from + column : 0), valid);
    }
    copies.commit();
  }
};

template <class T, int D>
GPU_FN MmaA load_a(const Tile<T, D>& tile, int row, int k) {
  return mma_load_a([&](int r, int c) { return tile.at(row + r, k + c); });
}
template <class T, int D>
GPU_FN MmaB load_b(const Tile<T, D>& tile, int row, int k) {
  return mma_load_b([&](int r, int c) { return tile.at(row + r, k + c); });
}
template <class T, int D>
GPU_FN MmaB load_b_transposed(const Tile<T, D>& tile, int row, int column) {
  return mma_load_b_transposed([&](int r, int c) { return tile.at(row + r, column + c); });
}

// A operands of a warp's 16 * `tiles` rows: kept in registers if in_registers, else loaded from shared memory at each
// use.
template <class T, int D, int tiles, bool in_registers>
struct Rows;
template <class T, int D, int tiles>
struct Rows<T, D, tiles, true> {
  MmaA a[tiles][D / mma_k];
  GPU_FN explicit Rows(const Tile<T, D>& tile) {
    GPU_UNROLL
    for (int r = 0; r < tiles; ++r) {
      GPU_UNROLL
      for (int k = 0; k < D / mma_k; ++k) a[r][k] = load_a(tile, r * 16, k * mma_k);
    }
  }
  GPU_FN MmaA at(int r, int k) const { return a[r][k]; }
};
template <class T, int D, int tiles>
struct Rows<T, D, tiles, false> {
  Tile<T, D> tile;
  GPU_FN explicit Rows(const Tile<T, D>& rows) : tile(rows) {}
  GPU_FN MmaA at(int r, int k) const { return load_a(tile, r * 16, k * mma_k); }
};

// Number of neighbouring 16-column tiles of sums that make one operand.
inline constexpr int operand_tiles = mma_k / 16;

// sums[r][n] += row tile r times tile rows [row + 16 n, ...) transposed, summed over all of D. `rolled`: the operands
// of a step are loaded for it, where those of all steps, which compilers may load first, do not fit in registers; only
// for rows that are not kept there.
template <bool rolled = false, class T, int D, int tiles, bool in_registers, int count>
GPU_FN void multiply(MmaAccumulator (&sums)[tiles][count], const Rows<T, D, tiles, in_registers>& rows,
                     const Tile<T, D>& tile, int row) {
  const auto add_products = [&](int k) {
    MmaA a[tiles];
    GPU_UNROLL
    for (int r = 0; r < tiles; ++r) a[r] = rows.at(r, k);
    GPU_UNROLL
    for (int n = 0; n < count; ++n) {
      const MmaB b = load_b(tile, row + n * 16, k * mma_k);
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) mma<T>(sums[r][n], a[r], b);
    }
  };
  if constexpr (rolled) {
    static_assert(!in_registers);
#pragma unroll 1
    for (int k = 0; k < D / mma_k; ++k) add_products(k);
  } else {
    GPU_UNROLL
    for (int k = 0; k < D / mma_k; ++k) add_products(k);
  }
}

// sums[r][n] += a[r] times columns [16 n, ...) of tile rows [row, row + mma_k).
template <class T, int D, int tiles>
GPU_FN void multiply_transposed(MmaAccumulator (&sums)[tiles][D / 16], const MmaA (&a)[tiles], const Tile<T, D>& tile,
                                int row) {
  GPU_UNROLL
  for (int n = 0; n < D / 16; ++n) {
    const MmaB b = load_b_transposed(tile, row, n * 16);
    GPU_UNROLL
    for (int r = 0; r < tiles; ++r) mma<T>(sums[r][n], a[r], b);
  }
}

// Stores the first `d` columns of 16 rows, each row times its factor. The lane's row m begins at to[at[m]]; a negative
// at[m] skips the row.
template <class T, int count>
GPU_FN void store_rows(T* to, const int64_t (&at)[mma_lane_rows], int d, const MmaAccumulator (&sums)[count],
                       const float (&factors)[mma_lane_rows]) {
  GPU_UNROLL
  for (int n = 0; n < count; ++n) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; i += mma_neighbours) {
      const int m = mma_lane_row(i);
      const int column = n * 16 + mma_column(i);
      const bool valid = at[m] >= 0 && column < d;
      if constexpr (mma_neighbours < 4) {
        Pack<T, mma_neighbours> pack;
        GPU_UNROLL
        for (int j = 0; j < mma_neighbours; ++j) pack.at[j] = from_float<T>(sums[n].at[i + j] * factors[m]);
        if (valid) store_pack(to + at[m] + column, pack);
      } else {  // as pairs, which clang does not split
        Pack<uint32_t, mma_neighbours / 2> pairs;
        GPU_UNROLL
        for (int j = 0; j < mma_neighbours; j += 2) {
          pairs.at[j / 2] = pack_rounded<T>(sums[n].at[i + j] * factors[m], sums[n].at[i + j + 1] * factors[m]);
        }
        if (valid) store_pack(reinterpret_cast<uint32_t*>(to + at[m] + column), pairs);
      }
    }
  }
}
// The same, plus what is there, each row times `earlier`, which is not read where that is 0.
template <int count>
GPU_FN void store_joined_rows(float* to, const int64_t (&at)[mma_lane_rows], int d, const MmaAccumulator (&sums)[count],
                              const float (&factors)[mma_lane_rows], const float (&earlier)[mma_lane_rows]) {
  GPU_UNROLL
  for (int n = 0; n < count; ++n) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; i += mma_neighbours) {
      const int m = mma_lane_row(i);
      const int column = n * 16 + mma_column(i);
      if (at[m] < 0 || column >= d) continue;
      float* const address = to + at[m] + column;
      Pack<float, mma_neighbours> pack = {};
      if (earlier[m] != 0) pack = load_pack<float, mma_neighbours>(address);
      GPU_UNROLL
      for (int j = 0; j < mma_neighbours; ++j) pack.at[j] = fma(earlier[m], pack.at[j], sums[n].at[i + j] * factors[m]);
      store_pack(address, pack);
    }
  }
}
// Where the lane's rows among rows `first` to first + 15 begin, of `end` rows that are `stride` elements apart; -1 if
// there is no such row.
GPU_FN void find_rows(int64_t (&at)[mma_lane_rows], int64_t stride, int first, int end) {
  const int64_t start = first * stride;
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    const bool valid = mma_row(i) >= -first && mma_row(i) < end - first;
    at[mma_lane_row(i)] = valid ? start + mma_row(i) * stride : -1;
  }
}

template <class Combine>
GPU_FN float reduce_row_lanes(float value, Combine combine) {
  GPU_UNROLL
  for (int mask = mma_row_mask; mask < mma_row_mask_end; mask *= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}
GPU_FN float row_sum(float value) {
  return reduce_row_lanes(value, [](float a, float b) { return a + b; });
}
GPU_FN float row_max(float value) {
  return reduce_row_lanes(value, [](float a, float b) { return b > a ? b : a; });
}

// The window as an int; it is clamped to 2^30, because no sequence is longer.
GPU_FN int window_of(const ScoreArgs& a) {
  return static_cast<int>(a.window < (int64_t{1} << 30) ? a.window : int64_t{1} << 30);
}
// Whether the query attends to the key (causal, and within the window, if any).
GPU_FN bool attends(int query, int key, int window) { return key <= query && (window <= 0 || key > query - window); }
// Whether every query attends to every key.
GPU_FN bool all_attend(int first_query, int last_query, int first_key, int last_key, int window) {
  return last_key <= first_query && (window <= 0 || first_key > last_query - window);
}
// Whether no query attends to any of the keys.
GPU_FN bool none_attend(int first_query, int last_query, int first_key, int last_key, int window) {
  return first_key > last_query || (window > 0 && last_key <= first_query - window);
}

// Scores as exponents of 2: exponent = factor * value. Plain scores (neither softcap nor slopes) have value = the raw
// dot product <q, k>, so that one fma applies the factor and subtracts the maximum or log-sum-exp. Otherwise value
// comes from modified(), and factor is 1.
struct Exponents {
  bool plain;
  float factor;
  float scale;    // of the dot product
  float softcap;  // 0: none
  GPU_FN explicit Exponents(const ScoreArgs& a)
      : plain(!(a.softcap > 0) && a.slopes == nullptr),
        factor(plain ? a.scale * log2_e : 1.0F),
        scale(a.scale),
        softcap(a.softcap) {}

  struct ModifiedScore {
    float value;
    float derivative;  // with respect to scale * product
  };
  // Applies softcap and ALiBi. `slope`: the head's ALiBi slope times log2(e), or 0.
  GPU_FN ModifiedScore modified(float product, float slope, int distance) const {
    float score = scale * product;
    float derivative = 1.0F;
    if (softcap > 0) {
      const float tangent = hyperbolic_tangent(score / softcap);
      score = softcap * tangent;
      derivative = 1.0F - tangent * tangent;
    }
    return {fma(slope, static_cast<float>(distance), score * log2_e), derivative};
  }
};
GPU_FN float alibi_slope(const ScoreArgs& a, int head) { return a.slopes != nullptr ? a.slopes[head] * log2_e : 0.0F; }

}  // namespace ingot::gpu::GPU_TARGET
#endif
