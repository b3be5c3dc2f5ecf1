// A gemm of 16-bit operands on tensor cores, as a device template, with a multi-stage pipeline: tiles are loaded to
// shared memory while earlier ones are multiplied. Sums run over k in order, without split-k, so that the bits of a row
// or a column depend on k only, whatever the shape of the tiles. The tile shape is therefore free to follow the shape
// of the gemm (arch/tuning.h).
//
// A stage is 32 columns of k: two or four mma instructions for each pair of operands between two barriers. Shared
// memory is swizzled: 16-byte chunks of 8 adjacent elements stay together and are permuted within their line (of one
// row, or of one k) so that lanes that read together read different banks, without padding.
#pragma once

#include <type_traits>

#include "backend/gpu/gemm/block_quant.h"
#include "backend/gpu/gemm/gemm.h"
#include "backend/gpu/gemm/matmul_tiles.h"

namespace ingot::gpu {

struct TileArgs : Gemm {
  int blocks_m = 0, blocks_n = 0;
  QuantFormat stored_b = QuantFormat::bf16;  // for the kernels that decode b
  bool packed_a = false, packed_b = false;   // its stored rows may be read 16 bytes at a time
  bool packed_c = false;                     // rows of c may be stored four elements at a time
};

constexpr int tile_depth = 32;  // columns of k per stage

// Bytes of a stage with `rows` rows of a and `columns` columns of b.
constexpr size_t stage_bytes(int rows, int columns) { return static_cast<size_t>(rows + columns) * tile_depth * 2; }

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

constexpr int threads = tile_threads;
constexpr int depth = tile_depth;
constexpr int stages = async_groups + 1;
// Columns of the large tiles: where copies wait in registers, only 128 fit.
constexpr int large_columns = async_groups > 1 ? 256 : 128;

// Swizzled index of element (row, k) in a stage laid out as [rows][k]. A row is 64 bytes, half of the banks; with the
// XOR by row / 2, eight rows use all banks.
GPU_FN int place_along(int row, int k) { return row * depth + ((k / 8) ^ (row / 2 % 4)) * 8 + k % 8; }
// The same for a stage laid out as [k][rows].
template <int rows>
GPU_FN int place_across(int k, int row) {
  return k * rows + ((row / 8) ^ (k % 8)) * 8 + row % 8;
}

// An operand in global memory: [rows, k], or [k, rows] if `across`.
struct Operand {
  const void* data;
  int64_t ld;
  int64_t first, rows;  // first row of the block's tile; rows of the operand
  int64_t k;
  bool across, packed;  // used only by some of the loaders below
  QuantFormat stored;
};

// The 16-byte chunks (8 adjacent elements) that a thread loads for a stage of `rows` rows.
template <class T, int rows>
struct Pieces {
  static constexpr int count = rows * depth / 8 / threads;

  int lines;            // lines of memory (rows, or k) from one chunk to the next
  int row, k;           // position of the first chunk in the stage
  const T* from;        // address of the first chunk
  int64_t round, step;  // elements to the next chunk, and to the next stage
  int64_t rows_left;    // of the operand, from the first chunk on
  int64_t k_left;

  GPU_FN Pieces(const Operand& operand, bool across) {
    const int64_t ld = operand.ld;
    const int line = across ? rows / 8 : depth / 8;  // chunks per line
    lines = threads / line;
    row = across ? thread_index() % line * 8 : thread_index() / line;
    k = across ? thread_index() / line : thread_index() % line * 8;
    from =
        static_cast<const T*>(operand.data) + (across ? k * ld + operand.first + row : (operand.first + row) * ld + k);
    round = lines * ld;
    step = across ? depth * ld : depth;
    rows_left = operand.rows - operand.first - row;
    k_left = operand.k - k;
  }
  GPU_FN bool there(int p, bool across) const {
    return across ? rows_left > 0 && k_left > p * lines : rows_left > p * lines && k_left > 0;
  }
  GPU_FN const T* at(int p) const { return from + p * round; }
  GPU_FN void next() {
    from += step;
    k_left -= depth;
  }
};

// Loaders, which bring an operand to shared memory. Each uses `count` of the AsyncCopies. begin() starts to load a
// stage (each call the next one); finish() completes it after the computation in between.

// Whole chunks, copied as they are.
template <class T, int rows, bool across>
struct Copied {
  static constexpr bool transposed = across;  // the layout in shared memory
  static constexpr int count = Pieces<T, rows>::count;

  Pieces<T, rows> pieces;
  int place;

  GPU_FN explicit Copied(const Operand& operand)
      : pieces(operand, across),
        place(across ? place_across<rows>(pieces.k, pieces.row) : place_along(pieces.row, pieces.k)) {}
  // Uses copies first_copy to first_copy + count - 1.
  template <class Copies>
  GPU_FN void begin(Copies& copies, int first_copy, T* stage) {
    GPU_UNROLL
    for (int p = 0; p < count; ++p) {
      const bool there = pieces.there(p, across);
      copies.begin(first_copy + p, stage + place + p * pieces.lines * (across ? rows : depth),
                   there ? pieces.at(p) : pieces.from, there);
    }
    pieces.next();
  }
  GPU_FN void finish(T*) {}
};

// A [k, rows] operand, transposed through registers: a thread loads 8 rows of two k and writes both k of a row at once.
template <class T, int rows>
struct Transposed {
  static constexpr bool transposed = false;
  static constexpr int count = 0;
  static constexpr int pairs = rows / 8 * (depth / 2);
  static constexpr int rounds = (pairs + threads - 1) / threads;

  const T* from;
  int64_t ld, rows_left, k_left;
  Pack<T, 8> held[rounds][2];

  GPU_FN explicit Transposed(const Operand& operand) : ld(operand.ld) {
    const int k = thread_index() % 16 * 2;
    const int row = thread_index() / 16 * 8;
    from = static_cast<const T*>(operand.data) + k * ld + operand.first + row;
    rows_left = operand.rows - operand.first - row;
    k_left = operand.k - k;
  }
  template <class Copies>
  GPU_FN void begin(Copies&, int, T*) {
    GPU_UNROLL
    for (int r = 0; r < rounds; ++r) {
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        held[r][i] = {};
        const bool there = k_left > i && rows_left > r * 128 && (pairs >= threads || thread_index() < pairs);
        if (there) held[r][i] = load_pack<T, 8>(from + i * ld + r * 128);
      }
    }
    from += depth * ld;
    k_left -= depth;
  }
  GPU_FN void finish(T* stage) {
    const int k = thread_index() % 16 * 2;
    if (pairs < threads && thread_index() >= pairs) return;
    GPU_UNROLL
    for (int r = 0; r < rounds; ++r) {
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = thread_index() / 16 * 8 + r * 128 + i;
        store_pack<T, 2>(stage + place_along(row, k), {held[r][0].at[i], held[r][1].at[i]});
      }
    }
  }
};

// Rows of a weight of any storage, decoded while loading.
template <class T, int rows>
struct Decoded {
  static constexpr bool transposed = false;
  static constexpr int count = 0;

  Operand operand;
  int64_t k0 = 0;

  GPU_FN explicit Decoded(const Operand& b) : operand(b) {}
  template <class Copies>
  GPU_FN void begin(Copies&, int, T*) {}
  GPU_FN void finish(T* stage) {
    for (int p = 0; p < Pieces<T, rows>::count; ++p) {
      const int row = (thread_index() + p * threads) / (depth / 8);
      const int k = thread_index() % (depth / 8) * 8;
      const int64_t line = operand.first + row;
      Floats<8> values = {};
      if (line < operand.rows && k0 + k < operand.k) {
        values = decode<8, 2>(operand.stored, operand.data, line * operand.ld + k0 + k);
      }
      store_floats(stage + place_along(row, k), values);
    }
    k0 += depth;
  }
};

// Any layout and alignment, loaded through registers.
template <class T, int rows>
struct Guarded {
  static constexpr bool transposed = false;
  static constexpr int count = 0;

  bool across, packed;
  Pieces<T, rows> pieces;
  Bytes16 held[Pieces<T, rows>::count];

  GPU_FN explicit Guarded(const Operand& operand)
      : across(operand.across), packed(operand.packed), pieces(operand, across) {}
  template <class Copies>
  GPU_FN void begin(Copies&, int, T*) {
    const int64_t left = across ? pieces.rows_left : pieces.k_left;  // valid elements of a chunk
    GPU_UNROLL
    for (int p = 0; p < Pieces<T, rows>::count; ++p) {
      held[p] = {};
      if (!pieces.there(p, across)) continue;
      const auto* from = reinterpret_cast<const uint16_t*>(pieces.at(p));
      held[p] = packed && left >= 8 ? *reinterpret_cast<const Bytes16*>(from) : load_first(from, left);
    }
    pieces.next();
  }
  GPU_FN void finish(T* stage) {
    GPU_UNROLL
    for (int p = 0; p < Pieces<T, rows>::count; ++p) {
      if (across) {
        const int row = pieces.row / 8 * 8;  // shows the compiler a multiple of 8: that needs fewer registers
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) {
          const auto bits = static_cast<uint16_t>(held[p].at[i / 2] >> (i % 2 * 16));
          stage[place_along(row + i, pieces.k + p * pieces.lines)] = {bits};
        }
      } else {
        *reinterpret_cast<Bytes16*>(stage + place_along(pieces.row + p * pieces.lines, pieces.k)) = held[p];
      }
    }
  }
};

// Tile order for cache reuse: concurrent blocks share rows and columns, because they go down eight row blocks before
// the next column.
struct BlockPlace {
  int64_t row, column;  // in blocks
};
GPU_FN BlockPlace block_place(const TileArgs& a) {
  constexpr int together = 8;
  const int strip = together * a.blocks_n;
  const int first = block_index() / strip * together;
  const int rows = a.blocks_m - first < together ? a.blocks_m - first : together;
  return {first + block_index() % strip % rows, block_index() % strip / rows};
}

// 16 rows, or columns, of a stage as operand tiles, from `first` and k on.
template <int rows, bool transposed, class T>
GPU_FN MmaDeepA load_rows(const T* stage, int first, int k) {
  static_assert(!transposed || mma_deep == mma_k);
  if constexpr (transposed) {
    return {{mma_load_a_transposed([=](int i, int row) { return stage + place_across<rows>(k + i, first + row); })}};
  } else {
    return mma_load_deep_a([=](int row, int i) { return stage + place_along(first + row, k + i); });
  }
}
template <int columns, bool transposed, class T>
GPU_FN MmaDeepB load_columns(const T* stage, int first, int k) {
  static_assert(!transposed || mma_deep == mma_k);
  if constexpr (transposed) {
    return {{mma_load_b_transposed(
        [=](int i, int column) { return stage + place_across<columns>(k + i, first + column); })}};
  } else {
    return mma_load_deep_b([=](int column, int i) { return stage + place_along(first + column, k + i); });
  }
}

// Computes the tile of c at `place`.
template <class T, int rows, int columns, class A, class B>
GPU_FN void multiply(const TileArgs& a, BlockPlace place) {
  constexpr int copied = A::count + B::count;
  auto* const shared = dynamic_shared<T>();
  const auto a_of = [&](int64_t step) { return shared + step % stages * ((rows + columns) * depth); };
  const auto b_of = [&](int64_t step) { return a_of(step) + rows * depth; };
  const int64_t first_row = place.row * rows;
  const int64_t first_column = place.column * columns;
  A from_a(Operand{a.a, a.lda, first_row, a.m, a.k, a.transpose_a, a.packed_a, QuantFormat::bf16});
  B from_b(Operand{a.b, a.ldb, first_column, a.n, a.k, !a.transpose_b, a.packed_b, a.stored_b});

  AsyncCopies<(copied > 0 ? copied : 1)> copies[stages - 1];
  const auto begin = [&](int64_t step) {
    auto& group = copies[step % (stages - 1)];
    from_a.begin(group, 0, a_of(step));
    from_b.begin(group, A::count, b_of(step));
    if constexpr (copied > 0) group.commit();
  };
  const auto finish = [&](int64_t step) {
    from_a.finish(a_of(step));
    from_b.finish(b_of(step));
  };

  WarpSums<rows, columns> sums;
  const int64_t steps = (a.k + depth - 1) / depth;
  GPU_UNROLL
  for (int step = 0; step < stages - 1; ++step) {
    begin(step);
    finish(step);
  }
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (copied > 0) copies[step % (stages - 1)].template end<stages - 2>();
    block_barrier();  // this stage is loaded; the previous one has been multiplied, so its buffer is free
    begin(step + stages - 1);
    const T* const a_stage = a_of(step);
    const T* const b_stage = b_of(step);
    GPU_UNROLL
    for (int k = 0; k < depth; k += mma_deep) {
      MmaDeepB b[sums.tiles_n];
      GPU_UNROLL
      for (int j = 0; j < sums.tiles_n; ++j)
        b[j] = load_columns<columns, B::transposed>(b_stage, sums.column() + j * 16, k);
      GPU_UNROLL
      for (int i = 0; i < sums.tiles_m; ++i) {
        const MmaDeepA part = load_rows<rows, A::transposed>(a_stage, sums.row() + i * 16, k);
        GPU_UNROLL
        for (int j = 0; j < sums.tiles_n; ++j) {
          GPU_UNROLL
          for (int t = 0; t < mma_deep / mma_k; ++t) mma<T>(sums.at[i][j], part.at[t], b[j].at[t]);
        }
      }
    }
    finish(step + stages - 1);
  }

  sums.template each<mma_neighbours>([&](int row, int column, const Floats<mma_neighbours>& values) {
    const int64_t r = first_row + row;
    const int64_t c = first_column + column;
    const auto put = [&](int64_t column_of, const auto& some) {
      if (r < a.m && column_of < a.n)
        put_floats<T>(a.c, a.out == DType::f32, r * a.ldc + column_of, some, a.accumulate);
    };
    if (a.packed_c) {
      put(c, values);
    } else {
      GPU_UNROLL
      for (int x = 0; x < mma_neighbours; ++x) put(c + x, Floats<1>{values.at[x]});
    }
  });
}

// Operands stored as [k, rows] are transposed while loading if the target has no transposing loads.
template <class T, int rows, bool across>
using Way = std::conditional_t<across && !mma_transposes, Transposed<T, rows>, Copied<T, rows, across>>;

}  // namespace ingot::gpu::GPU_TARGET
#endif
