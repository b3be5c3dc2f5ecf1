// The functions of backend/cpu/amx/tile_registers.h in plain code, as Intel's Software Developer's Manual, volume 2,
// defines the instructions. What they would refuse with a fault stops the test.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

struct TileShapes {
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct TileState {
  bool configured = false;
  TileShapes shapes;
  float words[8][16][16];
};
thread_local TileState tiles;

TileState& tiles_of(int t) {
  if (!tiles.configured || tiles.shapes.rows[t] == 0) abort();
  return tiles;
}

// A product of two bf16 is exact in fp32 but for its range; inputs that are subnormal count as zero.
float bf16_of(float word, int half) {
  const uint32_t bits =
      half == 0 ? __builtin_bit_cast(uint32_t, word) << 16 : __builtin_bit_cast(uint32_t, word) & 0xffff0000U;
  const bool subnormal = (bits & 0x7f800000U) == 0;
  return __builtin_bit_cast(float, subnormal ? bits & 0x80000000U : bits);
}

void configure_tiles(const TileShapes& shapes) {
  for (int t = 0; t < 8; ++t) {
    if (shapes.rows[t] > 16 || shapes.row_bytes[t] > 64 || shapes.row_bytes[t] % 4 != 0) abort();
  }
  tiles = {};
  tiles.configured = true;
  tiles.shapes = shapes;
}
void release_tiles() { tiles.configured = false; }

template <int t>
void load_tile(const float* from, int64_t stride) {
  TileState& state = tiles_of(t);
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t i = 0; i < 16; ++i) {
      const bool inside = row < state.shapes.rows[t] && i < state.shapes.row_bytes[t] / 4;
      state.words[t][row][i] = inside ? from[row * stride + i] : 0.0F;
    }
  }
}
template <int t>
void store_tile(float* to, int64_t stride) {
  const TileState& state = tiles_of(t);
  for (int64_t row = 0; row < state.shapes.rows[t]; ++row) {
    for (int64_t i = 0; i < state.shapes.row_bytes[t] / 4; ++i) to[row * stride + i] = state.words[t][row][i];
  }
}
template <int t>
void zero_tile() {
  for (auto& row : tiles_of(t).words[t]) {
    for (float& word : row) word = 0;
  }
}
template <int sums, int left, int right>
void add_tile_product() {
  TileState& state = tiles_of(sums);
  const TileShapes& shapes = state.shapes;
  const int pairs = shapes.row_bytes[left] / 4, columns = shapes.row_bytes[sums] / 4;
  if (shapes.rows[left] != shapes.rows[sums] || shapes.rows[right] != pairs || shapes.row_bytes[right] != 4 * columns)
    abort();
  for (int row = 0; row < shapes.rows[sums]; ++row) {
    for (int column = 0; column < columns; ++column) {
      float even = 0, odd = 0;
      for (int pair = 0; pair < pairs; ++pair) {
        const float a = state.words[left][row][pair], b = state.words[right][pair][column];
        even = fmaf(bf16_of(a, 0), bf16_of(b, 0), even);
        odd = fmaf(bf16_of(a, 1), bf16_of(b, 1), odd);
      }
      state.words[sums][row][column] += even + odd;
    }
  }
}

}  // namespace
}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
