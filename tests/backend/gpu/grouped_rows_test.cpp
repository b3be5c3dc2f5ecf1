// The rows of an expert have the bits of a linear layer with its weight alone, whatever the other experts' rows
// (ops/grouped_linear.h).
#include <gtest/gtest.h>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/philox.h"
#include "ops/grouped_linear.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

class GpuGroupedRows : public testing::TestWithParam<std::tuple<int, DType, StorageType>> {
 protected:
  GpuGroupedRows() { gpu::register_ops(registry_, DeviceKind::sim); }

  template <class T>
  void* upload(const std::vector<T>& values) {
    buffers_.emplace_back(*device_, values.size() * sizeof(T));
    device_->copy_from_host(buffers_.back().data(), values.data(), values.size() * sizeof(T));
    return buffers_.back().data();
  }
  static std::vector<float> random(int64_t n, uint64_t id) {
    RandomStream stream(12, id);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = stream.uniform() - 0.5F;
    return values;
  }
  Tensor activations(int64_t rows, int64_t columns, uint64_t id) {
    const DType dtype = std::get<1>(GetParam());
    const StorageType storage = dtype == DType::f32 ? StorageType::f32 : StorageType::bf16;
    return {upload(stored(storage, random(rows * columns, id))), dtype, {rows, columns}, device_.get()};
  }
  std::vector<std::byte> bytes_of(const Tensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    device_->copy_to_host(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }

  // Both the grouped op and one call for each expert's rows.
  void expect_same(const std::vector<int32_t>& counts, bool backward, bool row_invariant) {
    constexpr int64_t out = 40, in = 608;
    const auto experts = std::ssize(counts);
    const StorageType storage = std::get<2>(GetParam());
    const Weight all{.storage = storage,
                     .data = upload(stored(storage, random(experts * out * in, 1))),
                     .out = experts * out,
                     .in = in,
                     .device = device_.get()};
    std::vector<Weight> weights;
    std::vector<int32_t> offsets = {0};
    for (const int32_t count : counts) {
      const int64_t e = std::ssize(weights);
      weights.push_back(all.slice(e * out, (e + 1) * out));
      offsets.push_back(offsets.back() + count);
    }
    const int64_t rows = offsets.back();
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    const Tensor x = activations(rows, backward ? out : in, 2);
    const Tensor grouped = activations(rows, backward ? in : out, 3), apart = activations(rows, backward ? in : out, 4);
    const Tensor on_device{upload(offsets), DType::i32, {experts + 1}, device_.get()};
    Arena scratch(*device_, ops::linear_bytes(rows, out, in, size_of(x.dtype), true, false), "scratch");
    ops::Context context{*device_, registry_, scratch, nullptr};
    const ops::GroupedLinearAttributes attributes{.row_invariant = row_invariant, .max_rows = most};
    if (backward) {
      ops::grouped_linear_backward_input(context, grouped, x, weights, on_device, attributes);
    } else {
      ops::grouped_linear(context, grouped, x, weights, on_device, attributes);
    }
    for (size_t e = 0; e < weights.size(); ++e) {
      const Tensor part = apart.slice(offsets[e], offsets[e + 1]), given = x.slice(offsets[e], offsets[e + 1]);
      if (backward) {
        ops::linear_backward_input(context, part, given, weights[e], {});
      } else {
        ops::linear(context, part, given, weights[e], {.row_invariant = row_invariant});
      }
    }
    EXPECT_EQ(bytes_of(grouped), bytes_of(apart)) << (backward ? "backward" : "forward") << " of up to " << most;
  }

  std::unique_ptr<gpu::GpuDevice> device_ = gpu::sim::make_device(std::get<0>(GetParam()), gpu::sim::Schedule::forward);
  ops::Registry registry_;
  std::vector<Buffer> buffers_;
};

TEST_P(GpuGroupedRows, AreThoseOfALinearLayer) {
  const auto [width, dtype, storage] = GetParam();
  // The types that have kernels for few rows.
  const bool few = dtype == DType::f32
                       ? storage == StorageType::f32
                       : storage == StorageType::bf16 || storage == StorageType::q8_0 || storage == StorageType::q4_0;
  if (few) expect_same({3, 0, 1, 16, 0}, false, false);
  expect_same({3, 0, 1, 16, 0}, false, true);
  expect_same({0, 2, 5}, true, true);
  expect_same({70, 0, 3, 130}, false, true);
  expect_same({20, 66, 0}, true, true);
}

INSTANTIATE_TEST_SUITE_P(Sim, GpuGroupedRows,
                         testing::Combine(testing::Values(32, 64), testing::Values(DType::f32, DType::bf16),
                                          testing::Values(StorageType::f32, StorageType::bf16, StorageType::q8_0,
                                                          StorageType::q4_0, StorageType::q4_1)),
                         [](const auto& choice) {
                           return "sim" + std::to_string(std::get<0>(choice.param)) + "_" +
                                  ingot::name(std::get<1>(choice.param)) + "_" + ingot::name(std::get<2>(choice.param));
                         });

}  // namespace
}  // namespace ingot
