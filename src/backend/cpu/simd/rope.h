// Kernels of rope on `rows` tokens with `heads` heads of `head_dim` elements, of which the first 2 `pairs` are rotated.
// y may be x.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
using RopeForm = void(T* y, const T* x, const int32_t* positions, const float* frequencies, int64_t rows, int64_t heads,
                      int64_t head_dim, int64_t pairs, bool inverse);

struct RopeKernels {
  ForTypes<RopeForm> rotate;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const RopeKernels rope_kernels;)
