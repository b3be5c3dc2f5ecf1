// The result of a linear layer for a token does not depend on the other rows: a sequence decoded alone and in a batch
// gets the same bits (ops/matmul.h: LinearAttributes).
#include <gtest/gtest.h>

#include <cstring>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/philox.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

class GpuLinearRows : public testing::TestWithParam<std::tuple<int, DType, StorageType>> {
 protected:
  GpuLinearRows() { gpu::register_ops(registry_, DeviceKind::sim); }

  const void* upload(const void* data, size_t bytes) {
    buffers_.emplace_back(*device_, bytes);
    device_->copy_from_host(buffers_.back().data(), data, bytes);
    return buffers_.back().data();
  }
  static std::vector<float> random(int64_t n, uint64_t id) {
    RandomStream stream(11, id);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = stream.uniform() - 0.5F;
    return values;
  }
  const void* upload_as(StorageType storage, const std::vector<float>& values) {
    const std::vector<std::byte> bytes = stored(storage, values);
    return upload(bytes.data(), bytes.size());
  }
  Weight weight(StorageType storage, int64_t out, int64_t in) {
    return {.storage = storage,
            .data = upload_as(storage, random(out * in, 1)),
            .out = out,
            .in = in,
            .device = device_.get()};
  }

  // Tokens [begin, end) of `x` alone.
  std::vector<std::byte> rows(const Weight& weight, const Tensor& x, int64_t begin, int64_t end,
                              ops::LinearAttributes attributes) {
    const Tensor part = x.slice(begin, end);
    Arena scratch(*device_, ops::linear_bytes(end - begin, weight.out, weight.in, size_of(x.dtype), true, false),
                  "scratch");
    buffers_.emplace_back(*device_, static_cast<size_t>((end - begin) * weight.out) * size_of(x.dtype));
    const Tensor y = buffers_.back().view(x.dtype, {end - begin, weight.out});
    // A copy: the alignment of x must not matter.
    const Tensor own{const_cast<void*>(upload(part.data, part.bytes())), x.dtype, part.shape, device_.get()};
    ops::Context context{*device_, registry_, scratch, nullptr};
    ops::linear(context, y, own, weight, attributes);
    std::vector<std::byte> bytes(y.bytes());
    device_->copy_to_host(bytes.data(), y.data, bytes.size());
    return bytes;
  }

  void expect_rows_alone(int64_t tokens, const std::vector<int64_t>& counts, ops::LinearAttributes attributes) {
    const auto [width, dtype, storage] = GetParam();
    const Weight w = weight(storage, 21, 608);
    const Tensor x{const_cast<void*>(
                       upload_as(dtype == DType::f32 ? StorageType::f32 : StorageType::bf16, random(tokens * w.in, 2))),
                   dtype,
                   {tokens, w.in},
                   device_.get()};
    const auto whole = rows(w, x, 0, tokens, attributes);
    const size_t row_size = static_cast<size_t>(w.out) * size_of(dtype);
    for (const int64_t count : counts) {
      const int64_t begin = (tokens - count) / 2;
      const auto some = rows(w, x, begin, begin + count, attributes);
      EXPECT_EQ(std::memcmp(some.data(), whole.data() + static_cast<size_t>(begin) * row_size, some.size()), 0)
          << count << " tokens of " << tokens;
    }
  }

  std::unique_ptr<gpu::GpuDevice> device_ = gpu::sim::make_device(std::get<0>(GetParam()), gpu::sim::Schedule::forward);
  ops::Registry registry_;
  std::vector<Buffer> buffers_;
};

TEST_P(GpuLinearRows, AreInvariantUpTo16Rows) { expect_rows_alone(16, {1, 2, 5, 8, 9}, {}); }

TEST_P(GpuLinearRows, AreInvariantForAnyNumberOfRowsWhenRequested) {
  expect_rows_alone(150, {1, 8, 16, 17, 70}, {.row_invariant = true});
}

INSTANTIATE_TEST_SUITE_P(Sim, GpuLinearRows,
                         testing::Combine(testing::Values(32, 64), testing::Values(DType::f32, DType::bf16),
                                          testing::Values(StorageType::f32, StorageType::bf16, StorageType::q8_0,
                                                          StorageType::q4_0)),
                         [](const auto& choice) {
                           return "sim" + std::to_string(std::get<0>(choice.param)) + "_" +
                                  ingot::name(std::get<1>(choice.param)) + "_" + ingot::name(std::get<2>(choice.param));
                         });

}  // namespace
}  // namespace ingot
