// fp8 conversion in kernels. tensor/fp8.h documents the formats and which results are exact.
#pragma once

#include "backend/gpu/number.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

struct E4m3 {
  static constexpr int mantissa_bits = 3;
  static constexpr int bias = 7;
  static constexpr uint32_t largest_code = 0x7e;
  static constexpr int max_exponent = 8;              // of the largest value, 1.75 * 2^8
  static constexpr uint32_t max_mantissa = 0x680000;  // with a larger one a value rounds to more than that
};
struct E5m2 {
  static constexpr int mantissa_bits = 2;
  static constexpr int bias = 15;
  static constexpr uint32_t largest_code = 0x7b;
  static constexpr int max_exponent = 15;
  static constexpr uint32_t max_mantissa = 0x6fffff;
};

template <class F>
GPU_FN uint8_t fp8_code(float value) {
  const uint32_t bits = bits_of<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  constexpr int dropped = 23 - F::mantissa_bits;
  constexpr uint32_t magic = static_cast<uint32_t>(127 + 1 - F::bias - F::mantissa_bits + 23) << 23 | 0x400000U;
  const uint32_t subnormal = bits_of<uint32_t>(bits_of<float>(magnitude) + bits_of<float>(magic)) & 0x3fffffU;
  const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - F::bias) << 23);
  const uint32_t normal = (rebased + (1U << (dropped - 1)) - 1U + (rebased >> dropped & 1U)) >> dropped;
  uint32_t code = magnitude < static_cast<uint32_t>(127 + 1 - F::bias) << 23 ? subnormal : normal;
  code = code < F::largest_code ? code : F::largest_code;
  return static_cast<uint8_t>(code != 0 ? code | (bits >> 24 & 0x80U) : 0U);
}

template <class F>
GPU_FN float fp8_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7fU;
  constexpr uint32_t unit = static_cast<uint32_t>(127 + 1 - F::bias - F::mantissa_bits) << 23;
  const float subnormal = static_cast<float>(magnitude) * bits_of<float>(unit);
  const float normal =
      bits_of<float>((magnitude << (23 - F::mantissa_bits)) + (static_cast<uint32_t>(127 - F::bias) << 23));
  const float value = magnitude >> F::mantissa_bits == 0 ? subnormal : normal;
  return (code & 0x80U) != 0 ? -value : value;
}

template <class F>
GPU_FN float fp8_scale(float largest) {
  const uint32_t bits = bits_of<uint32_t>(largest);
  if (bits >= 0x7f800000U) return not_a_number();
  if (bits == 0) return 1.0F;
  int exponent = static_cast<int>(bits >> 23) - F::max_exponent + ((bits & 0x7fffffU) > F::max_mantissa ? 1 : 0);
  exponent = exponent < 127 - 110 ? 127 - 110 : exponent;
  return bits_of<float>(static_cast<uint32_t>(exponent) << 23);
}

// Row layout of an fp8 matrix: n codes, zero padding to a multiple of 16 bytes, the fp32 scale and 12 zero bytes.
GPU_FN int64_t fp8_scale_offset(int64_t n) { return (n + 15) / 16 * 16; }
GPU_FN int64_t fp8_row_bytes(int64_t n) { return fp8_scale_offset(n) + 16; }
GPU_FN float fp8_row_scale(const void* matrix, int64_t n, int64_t row) {
  const uint8_t* at = static_cast<const uint8_t*>(matrix) + row * fp8_row_bytes(n) + fp8_scale_offset(n);
  return *reinterpret_cast<const float*>(at);
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
