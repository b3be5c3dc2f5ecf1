// The order of q and k rows in GGUF files of architecture llama (specs/gguf.md, "q/k permutation of llama conversion"):
// Hugging Face rotates rows i and i + d/2 of a head, ggml rows 2i and 2i + 1.
#pragma once

#include <cstdint>

namespace ingot::checkpoint {

// Where row `row` of Hugging Face's order lies in a GGUF file; heads have `head_dim` rows each, an even number.
constexpr int64_t gguf_row(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim;
  const int64_t i = row % head_dim;
  const int64_t half = head_dim / 2;
  return head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

// The inverse: which row of Hugging Face's order row `row` of a GGUF file is.
constexpr int64_t hf_row(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim;
  const int64_t i = row % head_dim;
  return head * head_dim + (i % 2 == 0 ? i / 2 : head_dim / 2 + i / 2);
}

}  // namespace ingot::checkpoint
