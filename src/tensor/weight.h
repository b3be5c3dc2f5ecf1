// Weight: a matrix [out, in] in its stored form, of any storage type. Linear layers accept every type in the forward
// pass and for the gradient of their input; only f32 and bf16 weights can themselves be trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace ingot {

// The block-quantised types are GGUF's (github.com/ggml-org/ggml, src/ggml-common.h); a row is a whole number of
// blocks. A row of fp8_e4m3 or fp8_e5m2 can have any length and has one scale (tensor/fp8.h).
enum class StorageType : uint8_t { f32, bf16, f16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q6_k, fp8_e4m3, fp8_e5m2 };

const char* name(StorageType storage);  // "f32", "q8_0", ...
bool is_plain(StorageType storage);     // one number per element, as Weight::tensor() returns it: f32, bf16, f16
bool is_fp8(StorageType storage);
bool is_block(StorageType storage);           // block-quantised
int64_t block_elements(StorageType storage);  // elements per block; 1 for plain types and fp8
size_t block_bytes(StorageType storage);      // bytes per block; bytes per element for plain types and fp8
// Bytes of a row of `in` elements; ErrorKind::unsupported when the row is not a whole number of blocks.
size_t row_bytes(StorageType storage, int64_t in);

struct Weight {
  StorageType storage = StorageType::f32;
  const void* data = nullptr;  // out rows of row_bytes(storage, in), on `device`; owned by an arena or a file map
  int64_t out = 0;
  int64_t in = 0;
  const Device* device = nullptr;

  explicit operator bool() const { return data != nullptr; }
  // A view of rows [begin, end).
  Weight slice(int64_t begin, int64_t end) const;
  // A tensor view [out, in] of an f32, bf16 or f16 weight; internal error for any other.
  Tensor tensor() const;
  std::string text() const;
};

Weight weight_of(const Tensor& matrix);  // [out, in] of f32, bf16 or f16

}  // namespace ingot
