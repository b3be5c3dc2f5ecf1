#include "ops/lora_bytes.h"

namespace ingot::ops {

size_t lora_bytes(int64_t tokens, int64_t rank) {
  const size_t bytes = static_cast<size_t>(tokens * rank) * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

}  // namespace ingot::ops
