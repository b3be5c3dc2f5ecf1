#include "ops/attention_bytes.h"

#include <algorithm>

namespace ingot::ops {

size_t attention_thread_bytes(int64_t head_dim) {
  // The largest user is the CPU's loop over dk and dv: eight panels of 64 rows (keys, values, their gradients, and q
  // and dout twice). Next to panels, its loop over dq holds two blocks of 96 x 64 scores; some rows of sums on top.
  const int64_t padded = (head_dim + 15) / 16 * 16;
  return static_cast<size_t>(8 * 64 * padded + 2 * 96 * 64 + 1024) * sizeof(float);
}

size_t attention_units_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim) {
  const int64_t rows = tokens * heads * ((longest + attention_unit_keys - 1) / attention_unit_keys);
  return static_cast<size_t>(rows * head_dim * 4 + 63) / 64 * 64 + static_cast<size_t>(rows * 8 + 63) / 64 * 64;
}

size_t attention_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads) {
  const size_t row_sums = (static_cast<size_t>(tokens * heads) * sizeof(float) + 63) / 64 * 64;
  const size_t units = std::min(attention_units_bytes(tokens, longest, heads, head_dim), size_t{16} << 20);
  const size_t on_cpu = row_sums + static_cast<size_t>(threads) * attention_thread_bytes(head_dim);
  return std::max({on_cpu, units, attention_library_bytes});
}

}  // namespace ingot::ops
