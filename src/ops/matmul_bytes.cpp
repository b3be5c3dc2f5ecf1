#include "ops/matmul_bytes.h"

#include <algorithm>

namespace ingot::ops {

int64_t decoded_rows(int64_t out, int64_t in) {
  constexpr int64_t elements = int64_t{2} << 20;  // a slice fits in the last-level cache
  const int64_t rows = std::max<int64_t>(64, elements / std::max<int64_t>(1, in) / 64 * 64);
  return std::min(out, rows);
}

size_t linear_bytes(int64_t tokens, int64_t out, int64_t in, size_t activation_bytes, bool decoded) {
  if (!decoded) return 0;
  const auto footprint = [](int64_t elements, size_t size) {
    return (static_cast<size_t>(elements) * size + 63) / 64 * 64;  // as Arena::footprint
  };
  return footprint(decoded_rows(out, in) * in, activation_bytes) + footprint(tokens * in, sizeof(float));
}

}  // namespace ingot::ops
