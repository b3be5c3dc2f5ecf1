#include "ops/fixed_sum_bytes.h"

namespace ingot::ops {

size_t add_fixed_bytes(int64_t n) {
  const int64_t blocks = (n + fixed_sum_block - 1) / fixed_sum_block;
  return (static_cast<size_t>(blocks) * sizeof(float) + 63) / 64 * 64;
}

}  // namespace ingot::ops
