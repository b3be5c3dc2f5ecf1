#include "ops/matmul_bytes.h"

#include <algorithm>

namespace ingot::ops {

int64_t decoded_rows(int64_t out, int64_t in, bool host_visible) {
  // On CPUs a slice fits in the last-level cache. GPUs decode a weight as a whole, as long as that takes no more than
  // 512 MiB in 16 bits: a gradient of inputs that is summed over many slices reads and writes its sum for each of them.
  const int64_t elements = host_visible ? int64_t{2} << 20 : int64_t{1} << 28;
  const int64_t rows = std::max<int64_t>(64, elements / std::max<int64_t>(1, in) / 64 * 64);
  return std::min(out, rows);
}

size_t linear_bytes(int64_t tokens, int64_t out, int64_t in, size_t activation_bytes, bool decoded, bool host_visible) {
  if (!decoded) return 0;
  const auto footprint = [](int64_t elements, size_t size) {
    return (static_cast<size_t>(elements) * size + 63) / 64 * 64;  // as Arena::footprint
  };
  const int64_t rows = decoded_rows(out, in, host_visible);
  const size_t sums = rows < out ? footprint(tokens * in, sizeof(float)) : 0;  // over slices, in fp32
  return footprint(rows * in, activation_bytes) + sums;
}

}  // namespace ingot::ops
