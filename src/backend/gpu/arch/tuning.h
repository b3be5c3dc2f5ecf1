// Parameters that depend on the architecture: tile shapes and the thresholds for switching between kernels. Only
// `skinny_tokens` and `skinny_spans` change the bits of a result, within what ops/matmul.h allows.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_device.h"

namespace ingot::gpu {

struct Tuning {
  const char* architecture;      // prefix of Device::arch()
  int gemm_stages;               // in shared memory: the target's async_groups + 1 (gpu.h)
  int64_t tile_blocks;           // min 128 x 128 tiles for which a gemm uses them; below that it uses 64 x 64
  int large_columns;             // columns of the large tiles, which have 128 rows: as in the kernels, 256 or 128
  int64_t large_tile_blocks;     // min large tiles for which a gemm uses them
  int64_t skinny_tokens;         // max tokens of a linear layer for skinny_gemm.gpu.cpp; at most 16
  int64_t skinny_spans;          // min spans of a row per warp, where warps of skinny_gemm.gpu.cpp share rows
  int64_t decoding_tile_tokens;  // max tokens for which every tile decodes its part of a stored weight
};

// The entry for the device's architecture, or the fallback for its kind and warp width.
const Tuning& tuning_of(const GpuDevice& device);

}  // namespace ingot::gpu
