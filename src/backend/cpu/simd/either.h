// Loads and stores of tensors that are f32 or bf16 according to a flag, as masters and optimizer states are. Included
// by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

template <class Extent>
INGOT_INLINE Floats load_either(const void* data, bool is_bf16, int64_t i, Extent extent) {
  return is_bf16 ? load(static_cast<const Bf16*>(data) + i, extent) : load(static_cast<const float*>(data) + i, extent);
}
template <class Extent>
INGOT_INLINE void store_either(void* data, bool is_bf16, int64_t i, Floats x, Extent extent) {
  if (is_bf16) {
    store(static_cast<Bf16*>(data) + i, x, extent);
  } else {
    store(static_cast<float*>(data) + i, x, extent);
  }
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
