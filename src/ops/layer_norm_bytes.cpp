#include "ops/layer_norm_bytes.h"

namespace ingot::ops {

size_t layer_norm_bytes(int64_t tokens, int64_t features) {
  const int64_t blocks = (tokens + layer_norm_block - 1) / layer_norm_block;
  const size_t bytes = static_cast<size_t>(2 * blocks * features) * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

}  // namespace ingot::ops
