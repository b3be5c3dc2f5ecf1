// A gemm of 16-bit operands on tensor cores, as a device template, with a multi-stage pipeline: tiles are loaded to
// shared memory while earlier ones are multiplied. Sums run over k in order, without split-k, so that the bits of a row
// or a column depend on k only, whatever the shape of the tiles. The tile shape is therefore free to follow the shape
// of the gemm (arch/tuning.h).
//
// A stage is 32 columns of k: two or four mma instructions for each pair of operands between two barriers. Operands are
// K-major ([rows][k], k contiguous) or MN-major ([k][rows]), in memory and in shared memory. Shared memory is swizzled:
// 16-byte chunks of 8 adjacent elements are permuted within their row (or k), so that lanes that read together read
// different banks, without padding.
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

// Swizzled index of element (row, k) in a K-major stage, [rows][k]. A row is 64 bytes, half of the banks; with the XOR
// by row / 2, eight rows use all banks.
GPU_FN int swizzle_k_major(int row, int k) { return row * depth + ((k / 8) ^ (row / 2 % 4)) * 8 + k % 8; }
// The same for an MN-major stage, [k][rows].
template <int rows>
GPU_FN int swizzle_mn_major(int k, int row) {
  return k * rows + ((row / 8) ^ (k % 8)) * 8 + row % 8;
}

// An operand in global memory: [rows, k], or [k, rows] if `mn_major`.
struct Operand {
  const void* data;
  int64_t ld;
  int64_t first, rows;  // first row of the block's tile; rows of the operand
  int64_t k;
  bool mn_major, packed;  // used only by some of the loaders below
  QuantFormat stored;
};

// The 16-byte chunks (8 adjacent elements) that a thread loads for a stage of `rows` rows.
template <class T, int rows>
struct ThreadChunks {
  static constexpr int count = rows * depth / 8 / threads;

  int lines;            // contiguous lines of memory (rows, or k) from one chunk to the next
  int row, k;           // position of the first chunk in the stage
  const T* from;        // address of the first chunk
  int64_t round, step;  // elements to the next chunk, and to the next stage
  int64_t rows_left;    // of the operand, from the first chunk on
  int64_t k_left;

  GPU_FN ThreadChunks(const Operand& operand, bool mn_major) {
    const int64_t ld = operand.ld;
    const int line = mn_major ? rows / 8 : depth / 8;  // chunks per line
    lines = threads / line;
    row = mn_major ? thread_index() % line * 8 : thread_index() / line;
    k = mn_major ? thread_index() / line : thread_index() % line * 8;
    from = static_cast<const T*>(operand.data) +
           (mn_major ? k * ld + operand.first + row : (operand.first + row) * ld + k);
    round = lines * ld;
    step = mn_major ? depth * ld : depth;
    rows_left = operand.rows - operand.first - row;
    k_left = operand.k - k;
  }
  GPU_FN bool valid(int p, bool mn_major) const {
    return mn_major ? rows_left > 0 && k_left > p * lines : rows_left > p * lines && k_left > 0;
  }
  GPU_FN const T* at(int p) const { return from + p * round; }
  GPU_FN void next() {
    from += step;
    k_left -= depth;
  }
};

// Loaders copy an operand to shared memory. Each uses `count` of the AsyncCopies. Each call of begin() starts to load
// the next stage; finish(), after the computation in between, completes it.

// Aligned operands of either layout, copied asynchronously without change.
template <class T, int rows, bool mn_major>
struct Copied {
  static constexpr bool transposed = mn_major;  // the stage is MN-major
  static constexpr int count = ThreadChunks<T, rows>::count;

  ThreadChunks<T, rows> chunks;
  int offset;  // of the first chunk in a stage

  GPU_FN explicit Copied(const Operand& operand)
      : chunks(operand, mn_major),
        offset(mn_major ? swizzle_mn_major<rows>(chunks.k, chunks.row) : swizzle_k_major(chunks.row, chunks.k)) {}
  // Uses copies first_copy to first_copy + count - 1.
  template <class Copies>
  GPU_FN void begin(Copies& copies, int first_copy, T* stage) {
    GPU_UNROLL
    for (int p = 0; p < count; ++p) {
      const bool valid = chunks.valid(p, mn_major);
      copies.begin(first_copy + p, stage + offset + p * chunks.lines * (mn_major ? rows : depth),
                   valid ? chunks.at(p) : chunks.from, valid);
    }
    chunks.next();
  }
  GPU_FN void finish(T*) {}
};

// MN-major operands, transposed to K-major in registers: a thread loads 8 rows of two k and writes both k of a row at
// once.
template <class T, int rows>
struct Transposed {
  static constexpr bool transposed = false;
  static constexpr int count = 0;
  static constexpr int pairs = rows / 8 * (depth / 2);
  static constexpr int rounds = (pairs + threads - 1) / threads;

  const T* from;
  int64_t ld, rows_left, k_left;
  Pack<T, 8> loaded[rounds][2];

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
        loaded[r][i] = {};
        const bool valid = k_left > i && rows_left > r * 128 && (pairs >= threads || thread_index() < pairs);
        if (valid) loaded[r][i] = load_pack<T, 8>(from + i * ld + r * 128);
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
        store_pack<T, 2>(stage + swizzle_k_major(row, k), {loaded[r][0].at[i], loaded[r][1].at[i]});
      }
    }
  }
};

// K-major weights of any storage, decoded while they are loaded.
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
    for (int p = 0; p < ThreadChunks<T, rows>::count; ++p) {
      const int row = (thread_index() + p * threads) / (depth / 8);
      const int k = thread_index() % (depth / 8) * 8;
      const int64_t line = operand.first + row;
      Floats<8> values = {};
      if (line < operand.rows && k0 + k < operand.k) {
        values = decode<8, 2>(operand.stored, operand.data, line * operand.ld + k0 + k);
      }
      store_floats(stage + swizzle_k_major(row, k), values);
    }
    k0 += depth;
  }
};

// Operands of any layout and alignment, loaded through registers.
template <class T, int rows>
struct Guarded {
  static constexpr bool transposed = false;
  static constexpr int count = 0;

  bool mn_major, packed;
  ThreadChunks<T, rows> chunks;
  Bytes16 loaded[ThreadChunks<T, rows>::count];

  GPU_FN explicit Guarded(const Operand& operand)
      : mn_major(operand.mn_major), packed(operand.packed), chunks(operand, mn_major) {}
  template <class Copies>
  GPU_FN void begin(Copies&, int, T*) {
    const int64_t left = mn_major ? chunks.rows_left : chunks.k_left;  // valid elements of a chunk
    GPU_UNROLL
    for (int p = 0; p < ThreadChunks<T, rows>::count; ++p) {
      loaded[p] = {};
      if (!chunks.valid(p, mn_major)) continue;
      const auto* from = reinterpret_cast<const uint16_t*>(chunks.at(p));
      loaded[p] = packed && left >= 8 ? *reinterpret_cast<const Bytes16*>(from) : load_first(from, left);
    }
    chunks.next();
  }
  GPU_FN void finish(T* stage) {
    GPU_UNROLL
    for (int p = 0; p < ThreadChunks<T, rows>::count; ++p) {
      if (mn_major) {
        const int row = chunks.row / 8 * 8;  // shows the compiler a multiple of 8: that needs fewer registers
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) {
          const auto bits = static_cast<uint16_t>(loaded[p].at[i / 2] >> (i % 2 * 16));
          stage[swizzle_k_major(row + i, chunks.k + p * chunks.lines)] = {bits};
        }
      } else {
        *reinterpret_cast<Bytes16*>(stage + swizzle_k_major(chunks.row + p * chunks.lines, chunks.k)) = loaded[p];
      }
    }
  }
};

// The tile of c of a block. Tiles are rasterised in groups of eight row blocks, column by column, so that concurrent
// blocks share rows of a and columns of b in the L2 cache.
struct TileIndex {
  int64_t row, column;  // in tiles
};
GPU_FN TileIndex block_tile(const TileArgs& a) {
  constexpr int group_rows = 8;
  const int group_blocks = group_rows * a.blocks_n;
  const int first = block_index() / group_blocks * group_rows;
  const int rows = a.blocks_m - first < group_rows ? a.blocks_m - first : group_rows;
  return {first + block_index() % group_blocks % rows, block_index() % group_blocks / rows};
}

// 16 rows, or columns, of a stage as operand tiles, from `first` and k on.
template <int rows, bool transposed, class T>
GPU_FN MmaDeepA load_rows(const T* stage, int first, int k) {
  static_assert(!transposed || mma_deep == mma_k);
  if constexpr (transposed) {
    return {
        {mma_load_a_transposed([=](int i, int row) { return stage + swizzle_mn_major<rows>(k + i, first + row); })}};
  } else {
    return mma_load_deep_a([=](int row, int i) { return stage + swizzle_k_major(first + row, k + i); });
  }
}
template <int columns, bool transposed, class T>
GPU_FN MmaDeepB load_columns(const T* stage, int first, int k) {
  static_assert(!transposed || mma_deep == mma_k);
  if constexpr (transposed) {
    return {{mma_load_b_transposed(
        [=](int i, int column) { return stage + swizzle_mn_major<columns>(k + i, first + column); })}};
  } else {
    return mma_load_deep_b([=](int column, int i) { return stage + swizzle_k_major(first + column, k + i); });
  }
}

// Computes tile `tile` of c.
template <class T, int rows, int columns, class A, class B>
GPU_FN void multiply(const TileArgs& a, TileIndex tile) {
  constexpr int num_copies = A::count + B::count;
  auto* const shared = dynamic_shared<T>();
  const auto a_of = [&](int64_t step) { return shared + step % stages * ((rows + columns) * depth); };
  const auto b_of = [&](int64_t step) { return a_of(step) + rows * depth; };
  const int64_t first_row = tile.row * rows;
  const int64_t first_column = tile.column * columns;
  A loader_a(Operand{a.a, a.lda, first_row, a.m, a.k, a.transpose_a, a.packed_a, QuantFormat::bf16});
  B loader_b(Operand{a.b, a.ldb, first_column, a.n, a.k, !a.transpose_b, a.packed_b, a.stored_b});

  AsyncCopies<(num_copies > 0 ? num_copies : 1)> copies[stages - 1];
  const auto begin = [&](int64_t step) {
    auto& group = copies[step % (stages - 1)];
    loader_a.begin(group, 0, a_of(step));
    loader_b.begin(group, A::count, b_of(step));
    if constexpr (num_copies > 0) group.commit();
  };
  const auto finish = [&](int64_t step) {
    loader_a.finish(a_of(step));
    loader_b.finish(b_of(step));
  };

  WarpSums<rows, columns> sums;
  const int64_t steps = (a.k + depth - 1) / depth;
  GPU_UNROLL
  for (int step = 0; step < stages - 1; ++step) {
    begin(step);
    finish(step);
  }
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (num_copies > 0) copies[step % (stages - 1)].template wait<stages - 2>();
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

  sums.template for_each<mma_neighbours>([&](int row, int column, const Floats<mma_neighbours>& values) {
    const int64_t r = first_row + row;
    const int64_t c = first_column + column;
    const auto store = [&](int64_t column_of, const auto& some) {
      if (r < a.m && column_of < a.n) store_sum<T>(a.c, a.addend, a.out == DType::f32, r * a.ldc + column_of, some);
    };
    if (a.packed_c) {
      store(c, values);
    } else {
      GPU_UNROLL
      for (int x = 0; x < mma_neighbours; ++x) store(c + x, Floats<1>{values.at[x]});
    }
  });
}

// The loader of an aligned operand: MN-major operands are transposed while loading if the target has no transposing
// loads (ldmatrix.trans).
template <class T, int rows, bool mn_major>
using AlignedLoader = std::conditional_t<mn_major && !mma_transposes, Transposed<T, rows>, Copied<T, rows, mn_major>>;

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {

inline bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// The arguments of a tile kernel for `p`, whose b is not encoded.
inline TileArgs tile_args(const Gemm& p) {
  TileArgs args{p};
  if (p.k == 0) args.a = args.b = p.c;  // may be null; nothing is read, but addresses are computed from it
  args.packed_a = aligned(p.a) && p.lda % 8 == 0;
  args.packed_b = aligned(p.b) && p.ldb % 8 == 0;
  args.packed_c = aligned(p.c) && aligned(p.addend) && p.n % 4 == 0 && p.ldc % 4 == 0;
  return args;
}

}  // namespace ingot::gpu
#endif
