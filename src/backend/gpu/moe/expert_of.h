// The expert of a grouped row. Kernel passes only.
#pragma once

#include "backend/gpu/gpu.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// The expert whose rows offsets[e] .. offsets[e + 1] contain `row`. offsets [experts + 1] ascend from 0.
GPU_FN int expert_of_row(const int32_t* offsets, int experts, int64_t row) {
  int low = 0;
  int high = experts;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (offsets[middle] <= row ? low : high) = middle;
  }
  return low;
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
