// ingot bench train and decode with --profile: the FLOPs and bytes of each op, with nothing counted twice.
#include "bench/op_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/linear_group.h"
#include "ops/linear_low_rank.h"
#include "ops/matmul_bytes.h"

namespace ingot::bench {
namespace {

class OpProfileTest : public testing::Test {
 protected:
  // Tensors of zeros that live as long as the test.
  Tensor tensor(DType dtype, Shape shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape.rank(); ++i) elements *= shape[i];
    Buffer& memory = memory_.emplace_back(*device_, static_cast<size_t>(elements) * size_of(dtype));
    std::memset(memory.data(), 0, memory.bytes());
    return memory.view(dtype, shape);
  }
  template <class Op>
  void call(const std::vector<Tensor>& tensors) {
    profile_.begins(Op::name);
    profile_.ran(Op::name, tensors, ops::work_of<Op>(tensors));
  }
  // The only row.
  OpProfile::Row row() const {
    const std::vector<OpProfile::Row> rows = profile_.rows();
    EXPECT_EQ(rows.size(), 1U);
    return rows.at(0);
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  std::vector<Buffer> memory_;
  OpProfile profile_{*device_, 100};
};

TEST_F(OpProfileTest, GemmsAreDistinguishedByShape) {
  const Tensor y = tensor(DType::bf16, {4, 6}), x = tensor(DType::bf16, {4, 8}), w = tensor(DType::bf16, {6, 8});
  call<ops::Linear>({y, x, w});
  call<ops::Linear>({y, x, w});
  const OpProfile::Row same = row();
  EXPECT_EQ(same.op, "linear");
  EXPECT_EQ(same.shape, "4x6x8");
  EXPECT_EQ(same.calls, 2);
  EXPECT_FALSE(same.wide);
  EXPECT_EQ(same.flops, 2 * 2.0 * 4 * 6 * 8);
  EXPECT_EQ(same.bytes, 2 * 2.0 * (4 * 6 + 4 * 8 + 6 * 8));
  call<ops::Linear>({tensor(DType::bf16, {2, 6}), tensor(DType::bf16, {2, 8}), w});
  EXPECT_EQ(profile_.rows().size(), 2U);
}

// The gradient of a weight [3, 5] from dy [7, 3], which is stored transposed.
TEST_F(OpProfileTest, AnOperandMayBeTransposed) {
  call<ops::Matmul>({tensor(DType::f32, {3, 5}), tensor(DType::f32, {7, 3}), tensor(DType::f32, {7, 5})});
  EXPECT_EQ(row().shape, "3x5x7");
  EXPECT_EQ(row().flops, 2.0 * 3 * 5 * 7);
  EXPECT_TRUE(row().wide);
}

TEST_F(OpProfileTest, AttentionHasTheModelsFlopsPerTokenAndItsGradientTwoAndAHalfTimesThose) {
  call<ops::Attention>({tensor(DType::bf16, {3, 8}), tensor(DType::bf16, {3, 8})});
  call<ops::AttentionBackward>({tensor(DType::bf16, {3, 8}), tensor(DType::bf16, {3, 8})});
  for (const OpProfile::Row& row : profile_.rows()) {
    EXPECT_EQ(row.flops, row.op == "attention" ? 300 : 750) << row.op;
    EXPECT_FALSE(row.wide);
  }
}

// Only the table rows that are looked up are read.
TEST_F(OpProfileTest, AnEmbeddingReadsOnlyTheRowsItReturns) {
  call<ops::Embedding>({tensor(DType::f32, {2, 8}), tensor(DType::f32, {1000, 8})});
  EXPECT_EQ(row().bytes, 2.0 * 2 * 8 * 4);
}

// Weights in blocks are read as they are stored, by a group of layers too.
TEST_F(OpProfileTest, EncodedWeightsCountInTheirStoredForm) {
  ops::Registry registry;
  cpu::register_ops(registry);
  ThreadPool threads(1);
  constexpr int64_t in = 64;
  Arena scratch(*device_, ops::linear_bytes(1, 32, in, size_of(DType::f32), true, true), "scratch");
  ops::Context context{*device_, registry, scratch, &threads, &profile_};
  const Tensor enough = tensor(DType::f32, {32, in});
  const auto weight = [&](StorageType storage, int64_t out) {
    return Weight{.storage = storage, .data = enough.data, .out = out, .in = in, .device = device_.get()};
  };
  const Tensor x = tensor(DType::f32, {1, in});
  ops::linear(context, tensor(DType::f32, {1, 32}), x, weight(StorageType::q8_0, 32), {});
  EXPECT_EQ(row().bytes, 32.0 * 2 * 34 + (in + 32) * 4);
  const Tensor y[] = {tensor(DType::f32, {1, 8}), tensor(DType::f32, {1, 16})};
  const Weight weights[] = {weight(StorageType::q4_0, 8), weight(StorageType::f32, 16)};
  ops::linear_group(context, y, x, weights, {});
  const std::vector<OpProfile::Row> rows = profile_.rows();
  const auto group = std::ranges::find(rows, "linear_group", &OpProfile::Row::op);
  ASSERT_NE(group, rows.end());
  EXPECT_EQ(group->shape, "1x24x64");
  EXPECT_EQ(group->flops, 2.0 * 24 * in);
  EXPECT_EQ(group->bytes, 8.0 * 2 * 18 + 16.0 * in * 4 + (in + 8 + 16) * 4);
}

TEST_F(OpProfileTest, RowsAreTheMeanOfSteps) {
  const Tensor y = tensor(DType::bf16, {4, 6}), x = tensor(DType::bf16, {4, 8}), w = tensor(DType::bf16, {6, 8});
  for (int step = 0; step < 3; ++step) {
    call<ops::Linear>({y, x, w});
    call<ops::Linear>({y, x, w});
  }
  const OpProfile::Row whole = row(), mean = profile_.rows(3).at(0);
  EXPECT_EQ(mean.calls, 2);
  EXPECT_EQ(mean.flops, 2 * 2.0 * 4 * 6 * 8);
  EXPECT_EQ(mean.bytes, whole.bytes / 3);
  EXPECT_EQ(mean.seconds, whole.seconds / 3);
}

// An op's own time excludes that of ops it calls; otherwise the sum would exceed the total.
TEST_F(OpProfileTest, SelfTimeExcludesNestedOps) {
  const double began = steady_seconds();
  profile_.begins("outer");
  profile_.begins("inner");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  profile_.ran("inner", {}, {});
  profile_.ran("outer", {}, {});
  const double all = steady_seconds() - began;
  double reported = 0;
  for (const OpProfile::Row& row : profile_.rows()) {
    reported += row.seconds;
    if (row.op == "inner") EXPECT_GE(row.seconds, 0.05);
  }
  EXPECT_LE(reported, all);
  const std::vector<OpProfile::Row> rows = profile_.rows();
  EXPECT_TRUE(
      std::is_sorted(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
}

TEST_F(OpProfileTest, TheLowerBoundIsTheLongerOfComputeAndMemoryTime) {
  const runtime::PeakRates most{.bf16_flops = 100, .f32_flops = 50, .bytes = 10, .datasheet_bf16_flops = 0};
  EXPECT_EQ((OpProfile::Row{.flops = 200, .bytes = 10}.floor(most)), 2);
  EXPECT_EQ((OpProfile::Row{.wide = true, .flops = 200, .bytes = 10}.floor(most)), 4);
  EXPECT_EQ((OpProfile::Row{.flops = 200, .bytes = 30}.floor(most)), 3);
  EXPECT_EQ((OpProfile::Row{.flops = 200, .bytes = 30}.floor({})), 0);
}

// A linear layer with LoRA is one fused op or two gemms, depending on machine, dtype and weight storage. The FLOPs are
// the same.
TEST_F(OpProfileTest, ALoraLayerHasTheFlopsOfBothGemms) {
  ops::Registry registry;
  cpu::register_ops(registry);
  ThreadPool threads(1);
  constexpr int64_t tokens = 32, in = 256, out = 64, rank = 16;
  for (const auto& [dtype, storage] :
       {std::pair(DType::f32, StorageType::f32), std::pair(DType::bf16, StorageType::bf16),
        std::pair(DType::f32, StorageType::q8_0), std::pair(DType::bf16, StorageType::q8_0)}) {
    OpProfile profile(*device_, 0);
    Arena scratch(*device_, ops::linear_bytes(tokens, out, in, size_of(dtype), true, true), "scratch");
    ops::Context context{*device_, registry, scratch, &threads, &profile};
    const Tensor enough = tensor(DType::f32, {out, in});  // for a weight of any storage
    const Weight weight{.storage = storage, .data = enough.data, .out = out, .in = in, .device = device_.get()};
    ops::linear_low_rank(context, tensor(dtype, {tokens, out}), tensor(dtype, {tokens, in}), weight,
                         tensor(dtype, {tokens, rank}), tensor(dtype, {out, rank}), {});
    double flops = 0;
    for (const OpProfile::Row& row : profile.rows()) flops += row.flops;
    EXPECT_EQ(flops, 2.0 * tokens * out * (in + rank)) << name(dtype) << ", weights " << name(storage);
  }
}

}  // namespace
}  // namespace ingot::bench
