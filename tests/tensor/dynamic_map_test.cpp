// The values of 8-bit optimizer states compared with bitsandbytes' (tools/reference/make_optimizer_golden.py).
#include "tensor/dynamic_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "tensor/tolerance.h"
#include "tests/locations.h"

namespace ingot {
namespace {

// The last 2 x 256 floats of the file: its two tensors in name order.
std::vector<float> expected_maps() {
  std::ifstream file(std::string(test_data) + "/tensor/dynamic_map.safetensors", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> values(512);
  if (bytes.size() < 2048) return {};
  std::memcpy(values.data(), bytes.data() + bytes.size() - 2048, 2048);
  return values;
}

TEST(DynamicMap, EqualsBitsandbytes) {
  const std::vector<float> expected = expected_maps();
  ASSERT_EQ(expected.size(), 512U);
  for (size_t code = 0; code < 256; ++code) {
    for (const bool is_signed : {true, false}) {
      const float value = expected[code + (is_signed ? 0 : 256)];
      EXPECT_NEAR(dynamic_map(is_signed)[code], value, tolerance(DType::f32, 1) * std::abs(value)) << code;
    }
  }
}

TEST(DynamicMap, IsInAscendingOrder) {
  for (const bool is_signed : {true, false}) {
    for (size_t code = 1; code < 256; ++code) EXPECT_GT(dynamic_map(is_signed)[code], dynamic_map(is_signed)[code - 1]);
    EXPECT_EQ(dynamic_map(is_signed)[255], 1.0F);
  }
  EXPECT_EQ(dynamic_map(true)[127], 0.0F);
  EXPECT_EQ(dynamic_map(false)[0], 0.0F);
}

}  // namespace
}  // namespace ingot
