// Scratch of ops/lora.h. Tensor-free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Bytes for T tokens and adapters of rank up to `rank`.
size_t lora_bytes(int64_t tokens, int64_t rank);

}  // namespace ingot::ops
