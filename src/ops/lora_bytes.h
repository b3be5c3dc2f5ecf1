// Scratch bytes of ops/lora.h. Depends on no tensor code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Scratch bytes for `tokens` rows and adapters of rank up to `rank`.
size_t lora_bytes(int64_t tokens, int64_t rank);

}  // namespace ingot::ops
