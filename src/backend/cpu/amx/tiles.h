// Products of bf16 on AMX's tiles, on one thread. Compiled for machines that have it: see has_amx in isa.cpp.
//
// A tile of sums is 16 x 16 in fp32. TDPBF16PS adds to it the product of a left tile, 16 lines x 32 of k, and a right
// tile, 32 of k x 16 lines, in an order of its own that is the same for every element (Intel's Software Developer's
// Manual, volume 2: the even and the odd k are each summed in order from zero, then both are added to the sum;
// subnormals are zero). Operands are padded with zeros to whole tiles and k is taken in order, so a sum's bits depend
// on its line, its column and k alone. Which operand is the left one changes none of them but a NaN's payload.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu::amx {

constexpr int64_t tile_lines = 16;
constexpr int64_t tile_k = 32;
constexpr int64_t tile_operands = tile_lines * tile_k;  // bf16 of an operand's tile
constexpr int64_t tile_sums = tile_lines * tile_lines;  // fp32 of a tile of sums

// Lines of an operand, rows of the left one or columns of the right one: element (line, i) is
// data[line * line_step + i * k_step] for i < k. One of the steps is 1.
struct Lines {
  const Bf16* data;
  int64_t line_step, k_step;
  int64_t count, k;
};

// Packs into tiles [lines / 16, rounded up] [k / 32, rounded up]: each [16 lines] [32 of k] for the left operand,
// [16 pairs of k] [16 lines] [2 of k] for the right one. What is missing is zero. `packed` is 64-byte aligned.
void pack_left(Bf16* packed, const Lines& lines);
void pack_right(Bf16* packed, const Lines& lines);

// Where finished sums go: element (row, column) to c[row * c_row + column], or c[column * c_row + row] when transposed,
// assigned or added.
struct Result {
  float* c_float;  // one of the two
  Bf16* c_bf16;
  int64_t c_row;
  int64_t rows, columns;  // without the padding
  bool transposed, accumulate;
};

// sums [right_tiles] [left_tiles] += the product over a piece of k. `begin`: this piece is the first. `result`: it is
// the last, and the finished sums are written there instead; may be null. When it is both, `sums` is 2 x left_tiles
// tiles of memory for the work alone.
void multiply(float* sums, const Bf16* left, int64_t left_tiles, const Bf16* right, int64_t right_tiles,
              int64_t k_tiles, bool begin, const Result* result);

// Products of tiles in registers, for the machine's peak: returns the FLOPs done in `rounds` rounds. `sink` (256
// floats) keeps the result alive.
double tile_products(int64_t rounds, float* sink);

}  // namespace ingot::cpu::amx
