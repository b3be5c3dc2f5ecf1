// What a DryGpu lists for ops whose work is known.
#include "tests/bench/dry_gpu.h"

#include <gtest/gtest.h>

#include "backend/gpu/ops.h"
#include "base/error.h"
#include "ops/linear_bias.h"
#include "ops/linear_group.h"
#include "ops/matmul.h"
#include "ops/registry.h"
#include "ops/rms_norm.h"
#include "tests/bench/job_budget.h"

namespace ingot::bench {
namespace {

constexpr GpuModel h200{DeviceKind::cuda, "H200", "sm_90", size_t{1} << 37};

class DryGpuTest : public testing::Test {
 protected:
  DryGpuTest() { gpu::register_ops(registry_, DeviceKind::cuda); }
  Tensor tensor(DType dtype, Shape shape) { return memory_.allocate(dtype, shape); }
  // The launches of `call`, alike ones together.
  template <class Call>
  std::vector<BudgetRow> recorded(Call call) {
    StepRecorder recorder(gpu_, {});
    ops::Context context{gpu_, registry_, memory_, nullptr, &recorder};
    gpu_.launches().clear();
    call(context);
    return budget_rows(gpu_.launches());
  }

  DryGpu gpu_{h200};
  ops::Registry registry_;
  Arena memory_{gpu_, size_t{1} << 36, "test"};
};

TEST_F(DryGpuTest, ALibrarysGemmHasItsOwnFlopsAndBytes) {
  const Tensor y = tensor(DType::bf16, {4096, 14336}), x = tensor(DType::bf16, {4096, 4096});
  const Weight weight{StorageType::bf16, tensor(DType::bf16, {14336, 4096}).data, 14336, 4096, &gpu_};
  const std::vector<BudgetRow> rows = recorded([&](ops::Context& context) {
    ops::linear(context, y, x, weight, {});
    ops::linear(context, y, x, weight, {.accumulate = true});
    ops::linear(context, y, x, weight, {.accumulate = true, .invariance = ops::Invariance::none});
  });
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].op, "linear");
  EXPECT_EQ(rows[0].kernel, "cuBLASLt bf16 bf16 NT");
  EXPECT_EQ(rows[0].shape, "4096x14336x4096");
  EXPECT_EQ(rows[0].flops, 2.0 * 4096 * 14336 * 4096);
  EXPECT_EQ(rows[0].bytes, 2.0 * (4096 * 14336 + 4096 * 4096 + 14336 * 4096));
  EXPECT_EQ(rows[1].kernel, "cuBLASLt bf16 bf16 NT +=");
  EXPECT_EQ(rows[1].bytes - rows[0].bytes, 2.0 * 4096 * 14336);
  EXPECT_EQ(rows[2].kernel, "cuBLASLt bf16 bf16 NT += split-k");
}

TEST_F(DryGpuTest, ALibraryAddsTheBias) {
  const Tensor y = tensor(DType::bf16, {64, 48}), x = tensor(DType::bf16, {64, 32}), bias = tensor(DType::f32, {48});
  const Weight weight{StorageType::bf16, tensor(DType::bf16, {48, 32}).data, 48, 32, &gpu_};
  const std::vector<BudgetRow> rows =
      recorded([&](ops::Context& context) { ops::linear_bias(context, y, x, weight, bias, {}); });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].op, "linear_bias");
  EXPECT_EQ(rows[0].kernel, "cuBLASLt bf16 bf16 NT bias");
  EXPECT_EQ(rows[0].bytes, 2.0 * (64 * 48 + 64 * 32 + 48 * 32 + 48));
  EXPECT_EQ(rows[1].op, "scale");  // to bf16
}

// A row of 50,257 elements of 2 bytes is not aligned to 16 bytes, so our own kernels compute it.
TEST_F(DryGpuTest, WhatALibraryDeclinesIsAKernelOfOurs) {
  const Tensor y = tensor(DType::bf16, {64, 50257}), x = tensor(DType::bf16, {64, 64});
  const Weight weight{StorageType::bf16, tensor(DType::bf16, {50257, 64}).data, 50257, 64, &gpu_};
  const std::vector<BudgetRow> rows = recorded([&](ops::Context& context) { ops::linear(context, y, x, weight, {}); });
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_GT(rows[0].threads, 0);
  EXPECT_EQ(rows[0].flops, 2.0 * 64 * 50257 * 64);
}

TEST_F(DryGpuTest, ADecodedWeightIsReadAndWrittenBesideTheGemm) {
  const Tensor y = tensor(DType::bf16, {512, 256}), x = tensor(DType::bf16, {512, 128});
  const Weight weight{StorageType::q8_0, memory_.allocate_bytes(256 * 4 * 34), 256, 128, &gpu_};
  double decoded = 0;
  for (const BudgetRow& row : recorded([&](ops::Context& context) { ops::linear(context, y, x, weight, {}); })) {
    if (row.op == "dequantize") decoded += row.bytes;
  }
  EXPECT_EQ(decoded, 256 * 4 * 34 + 256 * 128 * 2);
}

TEST_F(DryGpuTest, BytesOfAKernelAreThoseOfItsOperands) {
  const Tensor y = tensor(DType::bf16, {8, 64}), x = tensor(DType::bf16, {8, 64}), w = tensor(DType::f32, {64});
  const std::vector<BudgetRow> rows =
      recorded([&](ops::Context& context) { ops::rms_norm(context, y, {}, x, w, {1e-5F}); });
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].op, "rms_norm");
  EXPECT_EQ(rows[0].bytes, 2 * 8 * 64 * 2 + 64 * 4);
  EXPECT_EQ(rows[0].flops, 0);
}

// q, k and v of Llama 3.1 8B for 256 sequences.
TEST_F(DryGpuTest, LayersWithOneInputAreOneGemmAndACopy) {
  const Tensor x = tensor(DType::bf16, {256, 4096});
  std::vector<Tensor> y;
  std::vector<Weight> weights;
  for (const int64_t out : {4096, 1024, 1024}) {
    y.push_back(tensor(DType::bf16, {256, out}));
    weights.push_back({StorageType::bf16, nullptr, out, 4096, &gpu_});
  }
  for (Weight& weight : weights) weight.data = tensor(DType::bf16, {weight.out, weight.in}).data;
  const std::vector<BudgetRow> rows =
      recorded([&](ops::Context& context) { ops::linear_group(context, y, x, weights, {}); });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].op, "gather_columns");
  EXPECT_EQ(rows[0].shape, "256x3");
  EXPECT_EQ(rows[0].bytes, 2.0 * 256 * 6144 * 2);
  EXPECT_EQ(rows[1].op, "linear");
  EXPECT_EQ(rows[1].shape, "256x6144x4096");
}

TEST_F(DryGpuTest, RefusesMoreThanItsMemory) {
  EXPECT_THROW(gpu_.allocate(size_t{1} << 37), Error);
  void* data = gpu_.allocate(size_t{1} << 30);
  EXPECT_EQ(gpu_.peak(), (size_t{1} << 36) + (size_t{1} << 30));
  gpu_.release(data, size_t{1} << 30);
  EXPECT_EQ(gpu_.memory_available(), size_t{1} << 36);
}

}  // namespace
}  // namespace ingot::bench
