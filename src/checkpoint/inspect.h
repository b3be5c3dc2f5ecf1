// Inspection of the tensors in a model's files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_store.h"

namespace ingot::checkpoint {

// Lower-case hex SHA-256 over every tensor in name order: for each its name, a zero byte, its type as the file spells
// it, a zero byte, its dimensions (outermost first, decimal, ',' between), a zero byte, and its bytes. The same for any
// sharding of the same tensors.
std::string model_hash(const TensorStore& store);

struct TensorValues {
  std::vector<int64_t> shape;  // outermost first
  std::vector<float> values;   // row-major
};

// Reads one tensor by its name in the file, dequantised to fp32, in the file's row order (also q and k of GGUF files).
// Errors: not_found with the nearest names; unsupported for a type that Ingot does not decode.
TensorValues read_tensor(const TensorStore& store, std::string_view name);

}  // namespace ingot::checkpoint
