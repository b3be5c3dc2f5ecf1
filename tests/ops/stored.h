// Numbers as a weight keeps them.
#pragma once

#include <cstring>
#include <vector>

#include "base/half.h"
#include "tensor/block_quant.h"
#include "tensor/weight.h"

namespace ingot {

// `values` in f32, bf16, f16 or whole blocks of `storage`.
inline std::vector<std::byte> stored(Storage storage, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(row_bytes(storage, count));
  if (is_block(storage)) {
    block_codec(storage).encode(values.data(), count, bytes.data());
  } else if (storage == Storage::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = storage == Storage::bf16 ? float_to_bf16(values[i]) : float_to_f16(values[i]);
      std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
    }
  }
  return bytes;
}

}  // namespace ingot
