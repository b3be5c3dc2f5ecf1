// The tile registers of AMX, for source files of the level `amx` (clang: g++'s intrinsics take literals only). Up to 16
// rows of up to 64 bytes each. Where
// INGOT_TILE_REGISTERS names another header, that one defines the same functions: a test emulates them.
#pragma once

#if defined(INGOT_TILE_REGISTERS)
#include INGOT_TILE_REGISTERS
#else

#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

// The shapes of the registers, as the instruction reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Sets the shapes, and all registers to zero.
INGOT_INLINE void configure_tiles(const TileShapes& shapes) { _tile_loadconfig(&shapes); }
// The system need not save the registers of this thread any more.
INGOT_INLINE void release_tiles() { _tile_release(); }

// Strides are in words of 32 bits.
template <int t>
INGOT_INLINE void load_tile(const float* from, int64_t stride) {
  _tile_loadd(t, from, stride * static_cast<int64_t>(sizeof(float)));
}
template <int t>
INGOT_INLINE void store_tile(float* to, int64_t stride) {
  _tile_stored(t, to, stride * static_cast<int64_t>(sizeof(float)));
}
template <int t>
INGOT_INLINE void zero_tile() {
  _tile_zero(t);
}
// Register `sums` [rows, columns] f32 += `left` [rows, pairs of bf16] times `right` [pairs, columns of pairs].
template <int sums, int left, int right>
INGOT_INLINE void add_tile_product() {
  _tile_dpbf16ps(sums, left, right);
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL

#endif
