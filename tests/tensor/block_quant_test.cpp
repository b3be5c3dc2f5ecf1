#include "tensor/block_quant.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "tests/locations.h"

namespace ingot {
namespace {

using Bytes = std::vector<uint8_t>;

std::string golden(const std::string& name) {
  return read_file(std::filesystem::path(test_data) / "formats/quant" / name);
}

std::vector<float> golden_floats(const std::string& name) {
  const std::string bytes = golden(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> decode(StorageType storage, const void* blocks, size_t num_values) {
  std::vector<float> values(num_values);
  block_codec(storage).decode(static_cast<const std::byte*>(blocks), static_cast<int64_t>(num_values), values.data());
  return values;
}

Bytes encode(StorageType storage, const std::vector<float>& values) {
  Bytes blocks(row_bytes(storage, static_cast<int64_t>(values.size())));
  block_codec(storage).encode(values.data(), static_cast<int64_t>(values.size()),
                              reinterpret_cast<std::byte*>(blocks.data()));
  return blocks;
}

// x[i] = i - 16, whose encoding is easy to compute by hand.
std::vector<float> ramp() {
  std::vector<float> values(32);
  std::iota(values.begin(), values.end(), -16.0F);
  return values;
}

TEST(BlockQuant, EncodesARampInQ8_0) {
  const Bytes expected = {0x08, 0x30, 0x81, 0x89, 0x91, 0x99, 0xa1, 0xa9, 0xb1, 0xb9, 0xc0, 0xc8,
                          0xd0, 0xd8, 0xe0, 0xe8, 0xf0, 0xf8, 0x00, 0x08, 0x10, 0x18, 0x20, 0x28,
                          0x30, 0x38, 0x40, 0x47, 0x4f, 0x57, 0x5f, 0x67, 0x6f, 0x77};
  EXPECT_EQ(encode(StorageType::q8_0, ramp()), expected);
  EXPECT_EQ(decode(StorageType::q8_0, expected.data(), 32)[0], -15.9990234375F);
}

TEST(BlockQuant, EncodesARampInQ4_0) {
  const Bytes expected = {0x00, 0x40, 0x80, 0x91, 0x91, 0xa2, 0xa2, 0xb3, 0xb3,
                          0xc4, 0xc4, 0xd5, 0xd5, 0xe6, 0xe6, 0xf7, 0xf7, 0xf8};
  EXPECT_EQ(encode(StorageType::q4_0, ramp()), expected);
  EXPECT_EQ(decode(StorageType::q4_0, expected.data(), 32)[0], -16.0F);
}

TEST(BlockQuant, EncodesARampInQ4_1) {
  const Bytes expected = {0x22, 0x40, 0x00, 0xcc, 0x80, 0x80, 0x91, 0x91, 0xa2, 0xa2,
                          0xb3, 0xb3, 0xc4, 0xc4, 0xd5, 0xd5, 0xe6, 0xe6, 0xf7, 0xf7};
  EXPECT_EQ(encode(StorageType::q4_1, ramp()), expected);
}

class BlockQuantGolden : public ::testing::TestWithParam<StorageType> {};

TEST_P(BlockQuantGolden, DecodesLikeTheGgufPackage) {
  const std::string name = ingot::name(GetParam());
  const std::string blocks = golden(name + ".blocks");
  const std::vector<float> expected = golden_floats(name + ".f32");
  ASSERT_EQ(blocks.size(), row_bytes(GetParam(), static_cast<int64_t>(expected.size())));
  EXPECT_EQ(decode(GetParam(), blocks.data(), expected.size()), expected);
  const std::string unaligned = "x" + blocks;
  EXPECT_EQ(decode(GetParam(), unaligned.data() + 1, expected.size()), expected);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, BlockQuantGolden,
                         ::testing::Values(StorageType::q8_0, StorageType::q4_0, StorageType::q4_1, StorageType::q5_0,
                                           StorageType::q5_1, StorageType::q4_k, StorageType::q6_k),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(BlockQuant, EncodesLikeTheGgufPackage) {
  const std::vector<float> values = golden_floats("encode.f32");
  ASSERT_EQ(values.size(), 1024U);
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0, StorageType::q4_1}) {
    const std::string expected = golden(std::string("encode.") + name(storage));
    const Bytes blocks = encode(storage, values);
    ASSERT_EQ(blocks.size(), expected.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i], static_cast<uint8_t>(expected[i]))
          << name(storage) << " block " << i / block_bytes(storage) << " byte " << i % block_bytes(storage);
    }
  }
}

TEST(BlockQuant, SmallestValuesBecomeZero) {
  const std::vector<float> values(32, std::numeric_limits<float>::denorm_min());
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0, StorageType::q4_1}) {
    const Bytes blocks = encode(storage, values);
    for (const float value : decode(storage, blocks.data(), 32)) EXPECT_EQ(value, 0.0F) << name(storage);
  }
}

TEST(BlockQuant, RefusesNonFiniteValues) {
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0, StorageType::q4_1}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()}) {
      std::vector<float> values = ramp();
      values[7] = bad;
      EXPECT_THROW(encode(storage, values), Error) << name(storage) << " " << bad;
    }
  }
}

TEST(BlockQuant, CodecsExistForBlockTypesOnly) {
  EXPECT_EQ(block_codec(StorageType::q6_k).encode, nullptr);
  EXPECT_THROW(block_codec(StorageType::bf16), Error);
}

}  // namespace
}  // namespace ingot
