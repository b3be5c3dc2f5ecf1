// 16-bit floats as bit patterns, and their conversions to and from fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace ingot {

// bf16 is the upper half of an fp32: exact.
constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even. NaN stays NaN (quiet, sign and upper payload kept); too large values become
// infinity.
constexpr uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// IEEE 754 binary16: exact, subnormals included; NaN becomes quiet.
constexpr float f16_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fU;
  const uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // mantissa * 2^-24, exact
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13) | (mantissa != 0 ? 0x400000U : 0U));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even, subnormals included. Magnitudes from 65520 become infinity; NaN stays NaN (quiet,
// sign and upper payload kept).
constexpr uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // >= 65520
  if (magnitude < 0x33000000U) return static_cast<uint16_t>(sign);             // < 2^-25
  const uint32_t exponent = magnitude >> 23;
  if (exponent >= 113U) {  // a normal half: drop 13 bits, the carry may raise the exponent
    const uint32_t rebased = magnitude - (112U << 23);
    return static_cast<uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13));
  }
  // A subnormal half: significand * 2^(exponent - 150) in units of 2^-24.
  const uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
  const uint32_t shift = 126U - exponent;  // 14..24
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1U << shift) - 1U);
  const uint32_t half = 1U << (shift - 1U);
  const uint32_t up = (rest > half || (rest == half && (kept & 1U) != 0)) ? 1U : 0U;
  return static_cast<uint16_t>(sign | (kept + up));
}

}  // namespace ingot
