#include "ops/linear_fp8_bytes.h"

#include <algorithm>

#include "ops/matmul_bytes.h"

namespace ingot::ops {

size_t linear_fp8_bytes(int64_t tokens, int64_t out, int64_t in, bool rounded, bool host_visible) {
  const auto footprint = [](int64_t bytes) { return (static_cast<size_t>(bytes) + 63) / 64 * 64; };  // as Arena's
  const auto fp8_row = [](int64_t n) { return (n + 15) / 16 * 16 + 16; };                            // as row_bytes
  constexpr int64_t bf16 = 2;
  const int64_t widest = std::max(out, in);
  const size_t decoded = footprint(tokens * widest * bf16) + linear_bytes(tokens, out, in, bf16, true, host_visible);
  const size_t scales = footprint(tokens * 4) + footprint(out * 4);  // contiguous, for a vendor's library
  return (rounded ? footprint(out * fp8_row(in)) : 0) + footprint(tokens * fp8_row(widest)) + std::max(decoded, scales);
}

}  // namespace ingot::ops
