#include "ops/adamw_bytes.h"

namespace ingot::ops {

size_t sum_squares_bytes(int64_t n) {
  const int64_t blocks = (n + sum_squares_block - 1) / sum_squares_block;
  return (static_cast<size_t>(blocks) * sizeof(double) + 63) / 64 * 64;
}

}  // namespace ingot::ops
