// Rows of 8-bit floats, each with its own scale: the operands of linear layers in fp8. Weights and activations are e4m3
// (4 exponent bits, largest value 448), gradients e4m3 or e5m2 (largest value 57344). Formats: Micikevicius et al.
// 2022, arXiv 2209.05433, and the OCP 8-bit Floating Point Specification.
//
// A row of n elements is stored as n codes, zero padding to a multiple of 16 bytes, the scale (fp32), and 12 zero
// bytes; an element is value(code) * scale. Scaling is current (not delayed): by the row's own largest magnitude. Three
// rules make the numbers the same on every device:
// - Scales are powers of two, so every element is exactly a bf16 value: a device without fp8 gemm multiplies the
//   decoded elements in bf16 and gets the same terms.
// - Each row has its own scale, so its bits depend on no other row: neither on the batch nor on how a matrix is split.
// - The code 0x80 and the codes of infinities and NaN are never written. So every code is a number, and read as
//   e4m3fnuz or e5m2fnuz (AMD's gfx942) it means exactly half of it. A row with a non-finite element has the scale NaN.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tensor/weight.h"

namespace ingot {

constexpr size_t fp8_scale_offset(int64_t n) { return (static_cast<size_t>(n) + 15) / 16 * 16; }
constexpr size_t fp8_row_bytes(int64_t n) { return fp8_scale_offset(n) + 16; }

// A format's numbers: codes are sign, exponent (biased), mantissa.
struct Fp8Format {
  int mantissa_bits;
  int bias;
  uint32_t largest_code;
};
constexpr Fp8Format fp8_format(StorageType storage) {
  return storage == StorageType::fp8_e4m3 ? Fp8Format{3, 7, 0x7e} : Fp8Format{2, 15, 0x7b};
}

// The nearest code, ties to even, of a value that is not NaN; values beyond the largest one saturate.
constexpr uint8_t fp8_code(StorageType storage, float value) {
  const Fp8Format f = fp8_format(storage);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  const int dropped = 23 - f.mantissa_bits;
  // Subnormal codes count units of 2^(1 - bias - mantissa_bits). Adding 1.5 * 2^23 units rounds to a whole number of
  // them.
  const uint32_t magic_exponent = static_cast<uint32_t>(127 + 1 - f.bias - f.mantissa_bits + 23);
  const float magic = std::bit_cast<float>((magic_exponent << 23) | 0x400000U);
  const float units = std::bit_cast<float>(magnitude) + magic;
  const uint32_t subnormal = std::bit_cast<uint32_t>(units) & 0x3fffffU;
  const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - f.bias) << 23);
  const uint32_t odd = (rebased >> dropped) & 1U;
  const uint32_t normal = (rebased + (1U << (dropped - 1)) - 1U + odd) >> dropped;
  const bool small = magnitude < (static_cast<uint32_t>(127 + 1 - f.bias) << 23);
  uint32_t code = small ? subnormal : normal;
  code = code < f.largest_code ? code : f.largest_code;
  const uint32_t sign = code != 0 ? bits >> 24 & 0x80U : 0U;
  return static_cast<uint8_t>(code | sign);
}

// The value of a code that is neither an infinity nor NaN.
constexpr float fp8_value(StorageType storage, uint8_t code) {
  const Fp8Format f = fp8_format(storage);
  const uint32_t magnitude = code & 0x7fU;
  const uint32_t exponent = magnitude >> f.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1U << f.mantissa_bits) - 1U);
  const float unit = std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - f.bias - f.mantissa_bits) << 23);
  const float value = exponent == 0 ? static_cast<float>(mantissa) * unit
                                    : std::bit_cast<float>(((exponent + static_cast<uint32_t>(127 - f.bias)) << 23) |
                                                           (mantissa << (23 - f.mantissa_bits)));
  return (code & 0x80U) != 0 ? -value : value;
}

// The scale of a row whose largest magnitude is `largest`: the smallest power of two at which it does not round beyond
// the format's largest value, so that encoding a decoded row gives the same row again. At least 2^-110, so that no
// element is subnormal in bf16; 1 for a row of zeros; NaN when `largest` is not finite.
constexpr float fp8_scale(StorageType storage, float largest) {
  const uint32_t bits = std::bit_cast<uint32_t>(largest);
  if (bits >= 0x7f800000U) return std::bit_cast<float>(0x7fc00000U);
  if (bits == 0) return 1.0F;
  // The largest value of both formats is 1.75 times a power of two. Mantissas up to 1.8125 (e4m3) or below 1.875 (e5m2)
  // round to it or below it.
  const bool narrow = storage == StorageType::fp8_e4m3;
  const uint32_t fits = narrow ? 0x680000U : 0x6fffffU;
  int exponent = static_cast<int>(bits >> 23) - (narrow ? 8 : 15) + ((bits & 0x7fffffU) > fits ? 1 : 0);
  exponent = exponent < 127 - 110 ? 127 - 110 : exponent;
  return std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
}

// The scale of a row of n elements.
float fp8_row_scale(const std::byte* row, int64_t n);
// Decodes elements [begin, begin + count) of a row of n.
void decode_fp8(StorageType storage, const std::byte* row, int64_t n, int64_t begin, int64_t count, float* values);
// Encodes a whole row.
void encode_fp8(StorageType storage, const float* values, int64_t n, std::byte* row);

}  // namespace ingot
