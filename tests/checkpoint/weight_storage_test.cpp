#include "checkpoint/weight_storage.h"

#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace ingot::checkpoint {
namespace {

TEST(WeightStorage, ParsesEverySetting) {
  using Row = std::tuple<const char*, std::optional<StorageType>, std::optional<StorageType>, bool>;
  const std::vector<Row> rows = {{"auto", StorageType::bf16, {}, false},
                                 {"bf16", StorageType::bf16, {}, false},
                                 {"fp16", StorageType::f16, {}, true},
                                 {"fp32", StorageType::f32, {}, true},
                                 {"stored", {}, {}, true},
                                 {"int8", StorageType::q8_0, {}, true},
                                 {"int4", StorageType::q8_0, StorageType::q4_0, true},
                                 {"fp8", StorageType::bf16, StorageType::fp8_e4m3, true}};
  for (const auto& [word, matrices, blocks, decoded] : rows) {
    const std::optional<WeightStorage> storage = weight_storage(word, DType::bf16);
    ASSERT_TRUE(storage.has_value()) << word;
    EXPECT_EQ(storage->matrices, matrices) << word;
    EXPECT_EQ(storage->blocks, blocks) << word;
    EXPECT_EQ(storage->decoded(DType::bf16), decoded) << word;
  }
  EXPECT_EQ(weight_storage("auto", DType::f32)->matrices, StorageType::f32);
  EXPECT_FALSE(weight_storage("fp32", DType::f32)->decoded(DType::f32));
  EXPECT_FALSE(weight_storage("int3", DType::bf16).has_value());
}

spec::ParamSpec matrix(spec::Role role, bool precise = false) {
  spec::ParamSpec p;
  p.name = "a matrix";
  p.role = role;
  p.precise = precise;
  p.shape = {64, 64};
  return p;
}

TEST(WeightStorage, DependsOnTheMatrixsRole) {
  const WeightStorage int4 = *weight_storage("int4", DType::bf16);
  EXPECT_EQ(int4.of(matrix(spec::Role::embedding)), StorageType::q8_0);
  EXPECT_EQ(int4.of(matrix(spec::Role::position_embedding, true)), StorageType::f32);  // it is added, not multiplied
  spec::ParamSpec in_block = matrix(spec::Role::up);
  in_block.layer = 0;
  in_block.linear = true;
  EXPECT_EQ(int4.of(in_block), StorageType::q4_0);
  in_block.role = spec::Role::router;
  in_block.precise = true;
  EXPECT_EQ(int4.of(in_block), StorageType::f32);  // a router's small errors would change the chosen experts
  const WeightStorage stored = *weight_storage("stored", DType::bf16);
  EXPECT_EQ(stored.of(matrix(spec::Role::embedding), StorageType::f16), StorageType::f16);
  EXPECT_EQ(stored.of(matrix(spec::Role::router, true), StorageType::q8_0), StorageType::q8_0);
  try {
    stored.of(matrix(spec::Role::embedding));
    ADD_FAILURE() << "a missing file was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
  }
}

}  // namespace
}  // namespace ingot::checkpoint
