#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ingot {
namespace {

// The value of a 16-bit float from its definition, in double: (1 + m / 2^p) * 2^(e - bias), or m / 2^p * 2^(1 - bias).
double value_of(uint16_t bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16ValueConverts) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = f16_to_float(bits);
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(float_to_f16(value), bits | 0x200);
      continue;
    }
    if ((bits & 0x7fff) == 0x7c00) {
      EXPECT_TRUE(std::isinf(value));
    } else {
      EXPECT_EQ(static_cast<double>(value), value_of(bits, 10, 15));
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    EXPECT_EQ(float_to_f16(value), bits);
  }
}

// Between two neighbours, values below the midpoint round down, those above it up, and the midpoint to the even one.
TEST(Half, F16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto below = static_cast<uint16_t>(i);
    const auto above = static_cast<uint16_t>(i + 1);
    const double low = value_of(below, 10, 15);
    const double high = i + 1 == 0x7c00 ? 65536.0 : value_of(above, 10, 15);
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    EXPECT_EQ(float_to_f16(middle), i % 2 == 0 ? below : above);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0F)), below);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 1e9F)), above);
    EXPECT_EQ(float_to_f16(-middle), (i % 2 == 0 ? below : above) | 0x8000);
  }
  EXPECT_EQ(float_to_f16(1e9F), 0x7c00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Half, Bf16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const auto below = static_cast<uint16_t>(i);
    const auto above = static_cast<uint16_t>(i + 1);
    EXPECT_EQ(static_cast<double>(bf16_to_float(below)), value_of(below, 7, 127));
    EXPECT_EQ(float_to_bf16(bf16_to_float(below)), below);
    const auto middle = std::bit_cast<float>((i << 16) + 0x8000U);
    EXPECT_EQ(float_to_bf16(middle), i % 2 == 0 ? below : above);
    EXPECT_EQ(float_to_bf16(std::nextafter(middle, 0.0F)), below);
    EXPECT_EQ(float_to_bf16(std::nextafter(middle, std::numeric_limits<float>::infinity())), above);
    EXPECT_EQ(float_to_bf16(-middle), (i % 2 == 0 ? below : above) | 0x8000);
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
}

TEST(Half, Bf16NanRemainsNan) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7f800001U)), 0x7fc0);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0xffffffffU)), 0xffff);
  EXPECT_EQ(float_to_f16(std::bit_cast<float>(0x7f800001U)), 0x7e00);
  EXPECT_TRUE(std::isnan(bf16_to_float(0x7f81)));
}

static_assert(f16_to_float(0x3c00) == 1.0F);
static_assert(float_to_f16(65504.0F) == 0x7bff);
static_assert(float_to_bf16(1.0F) == 0x3f80);

}  // namespace
}  // namespace ingot
