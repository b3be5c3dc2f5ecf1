// Conversion of weight rows between storage types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/weight.h"

namespace ingot::checkpoint {

// out[0..n) = the decoded values of `n` elements stored at `row` (any alignment). `n` must be whole blocks. Exact.
void decode_row(StorageType storage, const void* row, int64_t n, float* out);

// Stores values[0..n) at `row`: f32 exactly, bf16 and f16 rounded to nearest even, q8_0, q4_0 and q4_1 as GGUF's
// reference quantiser does. Errors: those of encode_q8_0; internal for other types.
void encode_row(StorageType storage, const float* values, int64_t n, void* row);

// Index of the first of `n` elements at `row` that is NaN or infinite, -1 when there is none. For a block type: the
// first element of the first block whose scale (or minimum) is non-finite, since that makes the block's values
// non-finite.
int64_t find_non_finite(StorageType storage, const void* row, int64_t n);

// f32, bf16 or f16; internal error for other types.
StorageType storage_of(DType dtype);

// The storage type that a safetensors dtype ("BF16") or GGUF type ("Q4_1") names; absent when there is none.
std::optional<StorageType> storage_from_file(std::string_view file_dtype);

}  // namespace ingot::checkpoint
