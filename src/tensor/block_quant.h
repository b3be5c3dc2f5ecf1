// Decoding and encoding of block-quantised rows: GGUF's Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K and Q6_K.
// Layouts: github.com/ggml-org/ggml, src/ggml-common.h. Scales are IEEE half, little-endian; blocks need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight.h"

namespace ingot {

// `n` is a whole number of blocks, which the caller has checked (row_bytes does); `blocks` holds row_bytes(storage, n)
// bytes and `values` n floats. Decoded values match ggml's reference bit for bit (fp32 arithmetic, no fused
// multiply-add). A non-finite scale gives non-finite values.
void decode_q8_0(const std::byte* blocks, int64_t n, float* values);  // d * q
void decode_q4_0(const std::byte* blocks, int64_t n, float* values);  // d * (q - 8)
void decode_q4_1(const std::byte* blocks, int64_t n, float* values);  // d * q + m
void decode_q5_0(const std::byte* blocks, int64_t n, float* values);  // d * (q - 16)
void decode_q5_1(const std::byte* blocks, int64_t n, float* values);  // d * q + m
void decode_q4_k(const std::byte* blocks, int64_t n, float* values);  // d * s_j * q - dmin * m_j, 8 sub-blocks j of 32
void decode_q6_k(const std::byte* blocks, int64_t n, float* values);  // d * s_j * (q - 32), 16 sub-blocks j of 16

// The encoded blocks match ggml's reference quantiser byte for byte. Errors: ErrorKind::unsupported for values that are
// not finite, or so large that the block's scale overflows fp16.
void encode_q8_0(const float* values, int64_t n, std::byte* blocks);
void encode_q4_0(const float* values, int64_t n, std::byte* blocks);
void encode_q4_1(const float* values, int64_t n, std::byte* blocks);

struct BlockCodec {
  StorageType storage;
  void (*decode)(const std::byte* blocks, int64_t n, float* values);
  void (*encode)(const float* values, int64_t n, std::byte* blocks);  // null where there is no encoder
  size_t scales;  // byte offset of the fp16 values in a block: the scale, then the minimum if it has one
  int num_scales;
};

// Errors: `internal` for a storage that is not block-quantised.
const BlockCodec& block_codec(StorageType storage);

}  // namespace ingot
