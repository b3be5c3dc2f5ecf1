// What is chosen by architecture and not by the code: shapes of tiles and when to change over. None of it changes a
// result's bits but `few_tokens` and `few_spans`, within what ops/matmul.h allows.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_device.h"

namespace ingot::gpu {

struct Tuning {
  const char* architecture;      // Device::arch() begins so
  int gemm_stages;               // in shared memory: the target's async_groups + 1 (gpu.h)
  int64_t tile_blocks;           // so many tiles of 128 x 128 are enough for the device; else tiles of 64 x 64
  int large_columns;             // of the large tiles, which have 128 rows: the kernels' own, 256 or 128
  int64_t large_tile_blocks;     // so many large tiles are enough
  int64_t few_tokens;            // most tokens of a linear layer by linear_few.gpu.cpp; 16 at most
  int64_t few_spans;             // spans of a row that a warp of it has at least, where warps share rows
  int64_t decoding_tile_tokens;  // most tokens for which every tile decodes its part of a stored weight
};

// That of the device's architecture, or of the nearest one of its kind.
const Tuning& tuning_of(const GpuDevice& device);

}  // namespace ingot::gpu
