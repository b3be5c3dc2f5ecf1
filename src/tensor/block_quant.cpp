#include "tensor/block_quant.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace ingot {
namespace {

constexpr int64_t small_block = 32;   // elements of Q8_0, Q4_x and Q5_x
constexpr int64_t super_block = 256;  // elements of the K types

float half_at(const std::byte* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return f16_to_float(bits);
}

int byte_at(const std::byte* bytes, int64_t i) { return std::to_integer<int>(bytes[i]); }
int signed_at(const std::byte* bytes, int64_t i) { return static_cast<int8_t>(byte_at(bytes, i)); }

// Calls put(j, nibble) for the 32 elements j: the low nibble of byte j, or the high nibble of byte j - 16. Two loops,
// so that the compiler vectorises them.
template <class Put>
void for_nibbles(const std::byte* bytes, Put put) {
  for (int64_t j = 0; j < 16; ++j) put(j, byte_at(bytes, j) & 15);
  for (int64_t j = 0; j < 16; ++j) put(j + 16, byte_at(bytes, j) >> 4);
}

// The fifth bits of 32 elements: bit j belongs to element j.
uint32_t high_bits_at(const std::byte* bytes) {
  uint32_t bits = 0;
  std::memcpy(&bits, bytes, 4);
  return bits;
}

int fifth_bit(uint32_t high_bits, int64_t j) { return static_cast<int>(high_bits >> j & 1U) << 4; }

// Calls decode_block(block, out) for each of the row's blocks.
template <class DecodeBlock>
void for_each_block(const std::byte* blocks, int64_t n, int64_t elements, size_t bytes, float* values,
                    DecodeBlock decode_block) {
  for (int64_t begin = 0; begin < n; begin += elements, blocks += bytes) decode_block(blocks, values + begin);
}

// The 6-bit scale and minimum of sub-block j, packed into 12 bytes.
struct ScaleAndMin {
  int scale;
  int min;
};

ScaleAndMin scale_and_min(const std::byte* packed, int64_t j) {
  if (j < 4) return {byte_at(packed, j) & 63, byte_at(packed, j + 4) & 63};
  return {(byte_at(packed, j + 4) & 15) | (byte_at(packed, j - 4) >> 6) << 4,
          (byte_at(packed, j + 4) >> 4) | (byte_at(packed, j) >> 6) << 4};
}

void put_scale(std::byte* out, float scale, StorageType storage) {
  const uint16_t bits = float_to_f16(scale);
  if ((bits & 0x7c00U) == 0x7c00U) {
    throw_hint(ErrorKind::unsupported, "keep this tensor in bf16 or fp32",
               "{}: a block's scale of {} exceeds the fp16 range", name(storage), scale);
  }
  std::memcpy(out, &bits, 2);
}

void check_finite(const float* values, int64_t n, StorageType storage) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) {
      throw_error(ErrorKind::unsupported, "{}: element {} of the row is {}", name(storage), i, values[i]);
    }
  }
}

// 1/d, or 0 where that is not finite: such a d becomes 0 in fp16, so the quants of the block do not matter.
float inverse(float d) {
  const float inverted = 1.0F / d;
  return std::isfinite(inverted) ? inverted : 0.0F;
}

void put_nibbles(std::byte* out, const int (&nibbles)[small_block]) {
  for (int64_t j = 0; j < 16; ++j) out[j] = static_cast<std::byte>(nibbles[j] | nibbles[j + 16] << 4);
}

}  // namespace

void decode_q8_0(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, small_block, 34, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    for (int64_t j = 0; j < small_block; ++j) out[j] = d * static_cast<float>(signed_at(block + 2, j));
  });
}

void decode_q4_0(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, small_block, 18, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    for_nibbles(block + 2, [&](int64_t j, int q) { out[j] = d * static_cast<float>(q - 8); });
  });
}

void decode_q4_1(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, small_block, 20, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    const float m = half_at(block + 2);
    for_nibbles(block + 4, [&](int64_t j, int q) { out[j] = d * static_cast<float>(q) + m; });
  });
}

void decode_q5_0(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, small_block, 22, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    const uint32_t high = high_bits_at(block + 2);
    for_nibbles(block + 6, [&](int64_t j, int q) { out[j] = d * static_cast<float>((q | fifth_bit(high, j)) - 16); });
  });
}

void decode_q5_1(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, small_block, 24, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    const float m = half_at(block + 2);
    const uint32_t high = high_bits_at(block + 4);
    for_nibbles(block + 8, [&](int64_t j, int q) { out[j] = d * static_cast<float>(q | fifth_bit(high, j)) + m; });
  });
}

void decode_q4_k(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, super_block, 144, values, [](const std::byte* block, float* out) {
    const float d = half_at(block);
    const float dmin = half_at(block + 2);
    for (int64_t j = 0; j < 8; ++j) {
      const ScaleAndMin packed = scale_and_min(block + 4, j);
      const float scale = d * static_cast<float>(packed.scale);
      const float min = dmin * static_cast<float>(packed.min);
      const std::byte* quants = block + 16 + 32 * (j / 2);  // shared by sub-blocks 2p (low nibbles) and 2p + 1 (high)
      const int shift = j % 2 == 0 ? 0 : 4;
      for (int64_t i = 0; i < 32; ++i) {
        out[32 * j + i] = scale * static_cast<float>(byte_at(quants, i) >> shift & 15) - min;
      }
    }
  });
}

void decode_q6_k(const std::byte* blocks, int64_t n, float* values) {
  for_each_block(blocks, n, super_block, 210, values, [](const std::byte* block, float* out) {
    const float d = half_at(block + 208);
    for (int64_t half = 0; half < 2; ++half) {
      const std::byte* low = block + 64 * half;
      const std::byte* high = block + 128 + 32 * half;
      const std::byte* scales = block + 192 + 8 * half;
      for (int64_t quarter = 0; quarter < 4; ++quarter) {  // 32 elements: a nibble of `low`, two bits of `high`
        const int64_t low_begin = quarter % 2 == 0 ? 0 : 32;
        const int low_shift = quarter < 2 ? 0 : 4;
        for (int64_t i = 0; i < 32; ++i) {
          const int q = (byte_at(low, low_begin + i) >> low_shift & 15) |
                        (byte_at(high, i) >> static_cast<int>(2 * quarter) & 3) << 4;
          const float scale = d * static_cast<float>(signed_at(scales, 2 * quarter + i / 16));
          out[128 * half + 32 * quarter + i] = scale * static_cast<float>(q - 32);
        }
      }
    }
  });
}

void encode_q8_0(const float* values, int64_t n, std::byte* blocks) {
  check_finite(values, n, StorageType::q8_0);
  for (int64_t begin = 0; begin < n; begin += small_block, blocks += 34) {
    const float* x = values + begin;
    float largest = 0.0F;
    for (int64_t j = 0; j < small_block; ++j) largest = std::max(largest, std::fabs(x[j]));
    const float d = largest / 127.0F;
    const float id = inverse(d);
    put_scale(blocks, d, StorageType::q8_0);
    for (int64_t j = 0; j < small_block; ++j) {
      blocks[2 + j] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[j] * id)));
    }
  }
}

void encode_q4_0(const float* values, int64_t n, std::byte* blocks) {
  check_finite(values, n, StorageType::q4_0);
  for (int64_t begin = 0; begin < n; begin += small_block, blocks += 18) {
    const float* x = values + begin;
    float extreme = 0.0F;  // the value of the largest magnitude, with its sign; the first of equals
    for (int64_t j = 0; j < small_block; ++j) {
      if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
    }
    const float d = extreme / -8.0F;
    const float id = inverse(d);
    put_scale(blocks, d, StorageType::q4_0);
    int nibbles[small_block];
    for (int64_t j = 0; j < small_block; ++j) {
      nibbles[j] = std::min(15, static_cast<int>(x[j] * id + 8.5F));
    }
    put_nibbles(blocks + 2, nibbles);
  }
}

void encode_q4_1(const float* values, int64_t n, std::byte* blocks) {
  check_finite(values, n, StorageType::q4_1);
  for (int64_t begin = 0; begin < n; begin += small_block, blocks += 20) {
    const float* x = values + begin;
    float low = x[0];
    float high = x[0];
    for (int64_t j = 1; j < small_block; ++j) {
      low = std::min(low, x[j]);
      high = std::max(high, x[j]);
    }
    const float d = (high - low) / 15.0F;
    const float id = inverse(d);
    put_scale(blocks, d, StorageType::q4_1);
    put_scale(blocks + 2, low, StorageType::q4_1);
    int nibbles[small_block];
    for (int64_t j = 0; j < small_block; ++j) {
      const float shifted = (x[j] - low) * id + 0.5F;  // the cast below truncates, so this rounds to nearest
      nibbles[j] = std::min(15, static_cast<int>(shifted));
    }
    put_nibbles(blocks + 4, nibbles);
  }
}

const BlockCodec& block_codec(StorageType storage) {
  static constexpr BlockCodec codecs[] = {
      {StorageType::q8_0, decode_q8_0, encode_q8_0, 0, 1}, {StorageType::q4_0, decode_q4_0, encode_q4_0, 0, 1},
      {StorageType::q4_1, decode_q4_1, encode_q4_1, 0, 2}, {StorageType::q5_0, decode_q5_0, nullptr, 0, 1},
      {StorageType::q5_1, decode_q5_1, nullptr, 0, 2},     {StorageType::q4_k, decode_q4_k, nullptr, 0, 2},
      {StorageType::q6_k, decode_q6_k, nullptr, 208, 1},
  };
  for (const BlockCodec& codec : codecs) {
    if (codec.storage == storage) return codec;
  }
  throw_error(ErrorKind::internal, "{} is not stored in blocks", name(storage));
}

}  // namespace ingot
