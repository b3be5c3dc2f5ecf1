// bf16 gemms with AMX tiles, on one thread. Only for machines with AMX: see find_amx in isa.cpp.
//
// A "line" is a row of the left operand or a column of the right one. A tile of sums is a 16 x 16 fp32 accumulator. The
// instruction TDPBF16PS adds to it a left tile [16 lines, 32 k] times a right tile [32 k, 16 lines], and sums over k in
// a fixed order that is the same for every element (Intel's Software Developer's Manual, volume 2: the products of even
// and of odd k are each summed in order from zero, then both sums are added to the accumulator; subnormals are treated
// as zero). Operands are zero-padded to whole tiles and k is processed in order, so the bits of an element depend only
// on its left line, its right line and k. Swapping the operands changes nothing but a NaN's payload.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu::amx {

constexpr int64_t tile_lines = 16;
constexpr int64_t tile_k = 32;
constexpr int64_t tile_operands = tile_lines * tile_k;  // bf16 elements of an operand tile
constexpr int64_t tile_sums = tile_lines * tile_lines;  // fp32 elements of a tile of sums

// An operand [count, k] in memory, not packed: element i of a line is data[line * line_step + i * k_step]. One of the
// steps is 1.
struct Lines {
  const Bf16* data;
  int64_t line_step, k_step;
  int64_t count, k;
};

// Pack an operand into zero-padded tiles [ceil(count / 16)] [ceil(k / 32)]. The layout of a tile is [16 lines] [32 k]
// for the left operand and [16 pairs of k] [16 lines] [2 k] for the right one. `packed` is 64-byte aligned.
void pack_left(Bf16* packed, const Lines& lines);
void pack_right(Bf16* packed, const Lines& lines);

// Where finished sums are written: element (row, column) to c[row * c_row + column], or to c[column * c_row + row] if
// `transposed`. With `accumulate` it is added to c.
struct Result {
  float* c_float;  // either this or c_bf16 is set
  Bf16* c_bf16;
  int64_t c_row;
  int64_t rows, columns;  // without the padding
  bool transposed, accumulate;
};

// Adds the product over one chunk of k to the tiles `sums` [right_tiles] [left_tiles]. `begin`: this is the first
// chunk, and the sums start at zero. `result` not null: this is the last chunk, and the finished sums are written there
// instead of `sums`. If the chunk is both first and last, `sums` is only scratch memory of 2 x left_tiles tiles.
void multiply(float* sums, const Bf16* left, int64_t left_tiles, const Bf16* right, int64_t right_tiles,
              int64_t k_tiles, bool begin, const Result* result);

// Runs `rounds` rounds of tile products on registers only, to measure the machine's peak, and returns the number of
// floating-point operations done. `result` (256 floats) keeps the computation from being optimised away.
double tile_dot_products(int64_t rounds, float* result);

}  // namespace ingot::cpu::amx
