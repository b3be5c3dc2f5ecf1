#include "ops/matmul_bytes.h"

#include <gtest/gtest.h>

namespace ingot::ops {
namespace {

// The down projection of a 70B model, [8192, 28672], whose input gradient of 8192 tokens is 940 MB in fp32: on a CPU it
// is a sum over 128 slices, on a GPU one gemm.
TEST(DecodedRows, AreTheWholeWeightOnGpus) {
  EXPECT_EQ(decoded_rows(8192, 28672, true), 64);
  EXPECT_EQ(decoded_rows(8192, 28672, false), 8192);
  constexpr size_t sum = size_t{8192} * 28672 * 4;
  EXPECT_EQ(linear_bytes(8192, 8192, 28672, 2, true, true), 64 * 28672 * 2 + sum);
  EXPECT_EQ(linear_bytes(8192, 8192, 28672, 2, true, false), size_t{8192} * 28672 * 2);
}

// A quantised head has several slices: at most 512 MiB are decoded at a time.
TEST(DecodedRows, AreBoundedOnGpus) {
  const int64_t rows = decoded_rows(128256, 8192, false);
  EXPECT_EQ(rows, 32768);
  EXPECT_EQ(linear_bytes(512, 128256, 8192, 2, true, false), size_t{512} * 8192 * 4 + (size_t{512} << 20));
  EXPECT_EQ(linear_bytes(512, 128256, 8192, 2, false, false), 0U);
}

}  // namespace
}  // namespace ingot::ops
