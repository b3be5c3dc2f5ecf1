// Loads and stores of EitherMemory. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/either_memory.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

template <class Extent>
INGOT_INLINE Floats load_either(EitherMemory memory, int64_t i, Extent extent) {
  return memory.is_bf16 ? load(static_cast<const Bf16*>(memory.data) + i, extent)
                        : load(static_cast<const float*>(memory.data) + i, extent);
}
template <class Extent>
INGOT_INLINE void store_either(EitherMemory memory, int64_t i, Floats x, Extent extent) {
  if (memory.is_bf16) {
    store(static_cast<Bf16*>(memory.data) + i, x, extent);
  } else {
    store(static_cast<float*>(memory.data) + i, x, extent);
  }
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
