#include "ops/attention_bytes.h"

#include <algorithm>

namespace ingot::ops {

size_t attention_thread_bytes(int64_t head_dim) {
  // The backward pass needs most (the forward pass as much for its scores): ten panels of 64 rows (keys twice, values,
  // their gradients, dq, and q and dout twice) and three blocks of 64 x 64 scores, plus some rows of sums.
  const int64_t padded = (head_dim + 15) / 16 * 16;
  return static_cast<size_t>(10 * 64 * padded + 3 * 64 * 64 + 1024) * sizeof(float);
}

size_t attention_splits_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim) {
  const int64_t rows = tokens * heads * ((longest + attention_split_keys - 1) / attention_split_keys);
  return static_cast<size_t>(rows * head_dim * 4 + 63) / 64 * 64 + static_cast<size_t>(rows * 8 + 63) / 64 * 64;
}

namespace {

size_t cpu_bytes(int64_t tokens, int64_t heads, int64_t head_dim, int threads) {
  const size_t row_sums = (static_cast<size_t>(tokens * heads) * sizeof(float) + 63) / 64 * 64;
  return row_sums + static_cast<size_t>(threads) * attention_thread_bytes(head_dim);
}

}  // namespace

size_t attention_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads) {
  const size_t units = std::min(attention_splits_bytes(tokens, longest, heads, head_dim), size_t{16} << 20);
  return std::max({cpu_bytes(tokens, heads, head_dim, threads), units, attention_library_bytes});
}

size_t attention_dq_accumulator_bytes(int64_t tokens, int64_t heads, int64_t head_dim) {
  // Every sequence has sums for its blocks of 64 queries, except the first block.
  return static_cast<size_t>(tokens / 64 * 64 * heads * head_dim) * sizeof(float);
}

size_t attention_backward_bytes(int64_t tokens, int64_t longest, int64_t heads, int64_t head_dim, int threads) {
  const size_t sums = threads > 0 ? attention_dq_accumulator_bytes(tokens, heads, head_dim) : 0;
  return std::max(attention_bytes(tokens, longest, heads, head_dim, threads),
                  cpu_bytes(tokens, heads, head_dim, threads) + sums);
}

}  // namespace ingot::ops
