// How the gemms of matmul.gpu.cpp bring their operands to shared memory, a stage at a time.
//
// A stage is 32 columns of k: two or four mma instructions for each pair of operands between two barriers. Shared
// memory is swizzled: 16-byte chunks of 8 adjacent elements stay together and are permuted within their line (of one
// row, or of one k) so that lanes that read together read different banks, without padding.
#pragma once

#include <cstddef>

#include "backend/gpu/gemm/block_quant.h"
#include "backend/gpu/gemm/matmul_tiles.h"

namespace ingot::gpu {

inline constexpr int tile_depth = 32;  // columns of k per stage

// Bytes of a stage with `rows` rows of a and `columns` columns of b.
constexpr size_t stage_bytes(int rows, int columns) { return static_cast<size_t>(rows + columns) * tile_depth * 2; }

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr int threads = tile_threads;
inline constexpr int depth = tile_depth;
inline constexpr int stages = async_groups + 1;

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

}  // namespace ingot::gpu::GPU_TARGET
#endif
