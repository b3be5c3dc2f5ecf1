// Random values, and values in a weight's storage.
#pragma once

#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/philox.h"
#include "tensor/block_quant.h"
#include "tensor/weight.h"

namespace ingot {

// `count` values in [-0.5, 0.5) that depend on `id`.
inline std::vector<float> random_values(int64_t count, uint64_t id) {
  RandomStream stream(5, id);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = stream.uniform() - 0.5F;
  return values;
}

// The storage of a plain matrix with elements of `dtype`.
inline StorageType storage_of(DType dtype) {
  return dtype == DType::f32 ? StorageType::f32 : dtype == DType::bf16 ? StorageType::bf16 : StorageType::f16;
}

// `values` as f32, bf16 or f16, or encoded in blocks of `storage`.
inline std::vector<std::byte> stored(StorageType storage, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(row_bytes(storage, count));
  if (is_block(storage)) {
    block_codec(storage).encode(values.data(), count, bytes.data());
  } else if (storage == StorageType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = storage == StorageType::bf16 ? float_to_bf16(values[i]) : float_to_f16(values[i]);
      std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
    }
  }
  return bytes;
}

}  // namespace ingot
