#include "tensor/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/half.h"
#include "tests/locations.h"

namespace ingot {
namespace {

struct Type {
  StorageType storage;
  const char* name;  // torch's name of the OCP type; gfx942's type has "uz" appended
  const char* fnuz;
};

class Fp8 : public testing::TestWithParam<Type> {
 protected:
  static std::string golden(const std::string& name) {
    return read_file(std::filesystem::path(test_data) / "formats/fp8" / name);
  }
  static std::vector<float> floats(const std::string& name) {
    const std::string bytes = golden(name + ".f32");
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  StorageType storage() const { return GetParam().storage; }
};

TEST_P(Fp8, CodesDecodeLikeTorch) {
  const std::vector<float> expected = floats(GetParam().name);
  ASSERT_EQ(expected.size(), 256);
  for (size_t code = 0; code < 256; ++code) {
    if (!std::isfinite(expected[code])) continue;
    EXPECT_EQ(fp8_value(storage(), static_cast<uint8_t>(code)), expected[code]) << code;
  }
}

TEST_P(Fp8, ValuesEncodeLikeTorchExceptMinusZero) {
  const std::vector<float> values = floats("values");
  const std::string expected = golden(std::string("encode.") + GetParam().name);
  const float largest = storage() == StorageType::fp8_e4m3 ? 448.0F : 57344.0F;
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint8_t>(expected[i]);
    EXPECT_EQ(fp8_code(storage(), std::clamp(values[i], -largest, largest)), code == 0x80 ? 0 : code) << values[i];
    EXPECT_EQ(fp8_code(storage(), values[i]), code == 0x80 ? 0 : code) << values[i];  // fp8_code saturates
  }
}

TEST_P(Fp8, CodesMeanHalfTheValueOnGfx942) {
  const std::vector<float> fnuz = floats(GetParam().fnuz);
  for (const float value : floats("values")) {
    const uint8_t code = fp8_code(storage(), value);
    ASSERT_NE(code, 0x80);
    EXPECT_EQ(fnuz[code], fp8_value(storage(), code) / 2) << value;
  }
}

TEST_P(Fp8, ScaleIsTheSmallestPowerOfTwoThatFits) {
  // Values that still round to the largest one: up to halfway to the next, where ties go down (e4m3) or up (e5m2).
  const double top = storage() == StorageType::fp8_e4m3 ? 464.0 : std::nextafter(61440.0F, 0.0F);
  for (const float largest :
       {1e-25F, 0.75F, 1.0F, 448.0F, 463.9F, 464.0F, 464.1F, 57344.0F, 61439.9F, 61440.0F, 3e38F}) {
    const float scale = fp8_scale(storage(), largest);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F);
    EXPECT_LE(static_cast<double>(largest), static_cast<double>(scale) * top) << largest;
    EXPECT_GT(static_cast<double>(largest), static_cast<double>(scale) / 2 * top) << largest;
  }
  EXPECT_EQ(fp8_scale(storage(), 0), 1.0F);
  EXPECT_EQ(fp8_scale(storage(), 1e-45F), 0x1p-110F);
  EXPECT_TRUE(std::isnan(fp8_scale(storage(), std::numeric_limits<float>::infinity())));
}

TEST_P(Fp8, ElementsAreExactlyBf16Values) {
  for (const float scale : {0x1p-110F, 1.0F, 0x1p100F}) {
    for (size_t code = 0; code < 256; ++code) {
      const float value = fp8_value(storage(), static_cast<uint8_t>(code)) * scale;
      EXPECT_EQ(bf16_to_float(float_to_bf16(value)), value);
    }
  }
}

std::vector<std::byte> encoded(StorageType storage, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> row(row_bytes(storage, n), std::byte{0xff});
  encode_fp8(storage, values.data(), n, row.data());
  return row;
}

TEST_P(Fp8, RowSurvivesARoundTrip) {
  std::vector<float> values(19);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<float>(i % 8) - 3.0F) * 0x1p-20F;
  const std::vector<std::byte> row = encoded(storage(), values);
  ASSERT_EQ(row.size(), 48);
  for (size_t i = 19; i < 32; ++i) EXPECT_EQ(row[i], std::byte{0});
  for (size_t i = 36; i < 48; ++i) EXPECT_EQ(row[i], std::byte{0});
  std::vector<float> back(5);
  decode_fp8(storage(), row.data(), 19, 7, 5, back.data());
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], values[7 + i]);
}

TEST_P(Fp8, EncodingADecodedRowChangesNothing) {
  for (float largest = 1.0F; largest < 4.0F; largest *= 1.0078125F) {
    const std::vector<std::byte> row = encoded(storage(), {largest, -0.3F, 0.01F});
    std::vector<float> values(3);
    decode_fp8(storage(), row.data(), 3, 0, 3, values.data());
    EXPECT_EQ(encoded(storage(), values), row) << largest;
  }
}

TEST_P(Fp8, RowOfZerosHasScaleOne) {
  const std::vector<std::byte> row = encoded(storage(), {0.0F, -0.0F, 0.0F});
  EXPECT_EQ(fp8_row_scale(row.data(), 3), 1.0F);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(row[i], std::byte{0});
}

TEST_P(Fp8, ANonFiniteRowIsAllNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const std::vector<std::byte> row = encoded(storage(), {1.0F, bad, 0.0F});
    std::vector<float> back(3);
    decode_fp8(storage(), row.data(), 3, 0, 3, back.data());
    for (const float value : back) EXPECT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Fp8,
                         testing::Values(Type{StorageType::fp8_e4m3, "e4m3fn", "e4m3fnuz"},
                                         Type{StorageType::fp8_e5m2, "e5m2", "e5m2fnuz"}),
                         [](const auto& i) { return name(i.param.storage); });

}  // namespace
}  // namespace ingot
