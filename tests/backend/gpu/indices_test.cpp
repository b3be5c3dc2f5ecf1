// Kernels cannot throw for indices out of range. They read nothing outside the tensor (the simulated device allocates
// exact sizes, which the address sanitizer checks) and give NaN, as the ops' contracts say.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/moe.h"
#include "ops/rope_kv_store.h"

namespace ingot {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

class GpuIndices : public testing::TestWithParam<int> {
 protected:
  GpuIndices() { gpu::register_ops(registry_, DeviceKind::sim); }

  template <class T>
  Tensor upload(const std::vector<T>& values, const Shape& shape) {
    buffers_.emplace_back(*device_, values.size() * sizeof(T));
    device_->copy_from_host(buffers_.back().data(), values.data(), values.size() * sizeof(T));
    return buffers_.back().view(std::is_same_v<T, float> ? DType::f32 : DType::i32, shape);
  }
  Tensor ints(const std::vector<int32_t>& values) { return upload(values, {std::ssize(values)}); }
  Tensor floats(const std::vector<float>& values, const Shape& shape) { return upload(values, shape); }

  template <class T>
  void expect(const Tensor& tensor, const std::vector<T>& expected) {
    std::vector<T> got(expected.size());
    device_->copy_to_host(got.data(), tensor.data, got.size() * sizeof(T));
    for (size_t i = 0; i < got.size(); ++i) {
      if constexpr (std::is_same_v<T, float>) {
        if (std::isnan(expected[i])) {
          EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
          continue;
        }
      }
      EXPECT_EQ(got[i], expected[i]) << i;
    }
  }

  std::unique_ptr<gpu::GpuDevice> device_ = gpu::sim::make_device(GetParam(), gpu::sim::Schedule::forward);
  ops::Registry registry_;
  Arena scratch_;
  ops::Context context_{*device_, registry_, scratch_, nullptr};
  std::vector<Buffer> buffers_;
};

TEST_P(GpuIndices, TokenIdsOutOfRangeGiveNaN) {
  const Tensor y = floats(std::vector<float>(6), {3, 2});
  ops::embedding(context_, y, weight_of(floats({1, 2, 3, 4}, {2, 2})), ints({2, 1, -1}));
  expect<float>(y, {nan, nan, 3, 4, nan, nan});
  const Tensor dtable = floats({5, 6, 7, 8}, {2, 2});
  ops::embedding_backward(context_, dtable, floats({1, 2, 3, 4, 5, 6}, {3, 2}), ints({2, 1, -1}), true);
  expect<float>(dtable, {5, 6, 10, 12});
}

TEST_P(GpuIndices, TargetsOutOfRangeGiveNaN) {
  const Tensor losses = floats(std::vector<float>(3), {3});
  const Tensor dlogits = floats(std::vector<float>(6), {3, 2});
  ops::cross_entropy(context_, losses, dlogits, floats(std::vector<float>(6), {3, 2}), ints({2, -1, -2}));
  expect<float>(losses, {nan, 0, nan});
  expect<float>(dlogits, {nan, nan, 0, 0, nan, nan});
}

TEST_P(GpuIndices, ExpertAndRowIndicesOutOfRangeGiveNaN) {
  const Tensor rows = ints({-1, -1, -1});
  const Tensor places = ints({-1, -1, -1});
  const Tensor offsets = ints({-1, -1, -1});
  ops::moe_group(context_, rows, places, offsets, ints({7, 0, -3}).reshape({3, 1}));
  expect<int32_t>(rows, {1, 2, 0});
  expect<int32_t>(places, {2, 0, 1});
  expect<int32_t>(offsets, {0, 2, 3});

  const Tensor dlogits = floats({9, 9}, {1, 2});
  ops::moe_route_backward(context_, dlogits, floats({1}, {1, 1}), ints({2}).reshape({1, 1}), floats({1}, {1, 1}));
  expect<float>(dlogits, {0, 0});

  const Tensor y = floats(std::vector<float>(2), {2, 1});
  const Tensor z = floats({1, 2}, {2, 1});
  ops::gather_rows(context_, y, z, ints({2, 0}));
  expect<float>(y, {nan, 1});
  const Tensor one = floats({1, 1}, {2, 1});
  ops::combine_rows(context_, y, z, ints({1, -1}).reshape({2, 1}), one, false);
  expect<float>(y, {2, nan});
  const Tensor dz = floats({9, 9}, {2, 1});
  const Tensor dweights = floats({9, 9}, {2, 1});
  ops::combine_rows_backward(context_, dz, dweights, floats({3, 4}, {2, 1}), z, ints({1, 2}).reshape({2, 1}), one);
  expect<float>(dz, {9, 3});
  expect<float>(dweights, {6, nan});
}

TEST_P(GpuIndices, CacheSlotsOutOfRangeAreNotWritten) {
  const Tensor k = floats({1, 2}, {1, 2, 1});
  const Tensor v = floats({3, 4}, {1, 2, 1});
  const Tensor news = floats({5, 6, 7}, {3, 1});
  ops::kv_store(context_, {k, v}, news, news, ints({2, 1, -1}));
  expect<float>(k, {1, 6});
  expect<float>(v, {3, 6});
  const Tensor q = floats({1, 2, 3, 4, 5, 6}, {3, 2}), rotated = floats({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor k_pages = floats({1, 2, 3, 4}, {1, 2, 2}), v_pages = floats({5, 6, 7, 8}, {1, 2, 2});
  ops::rope_kv_store(context_, q, {k_pages, v_pages}, rotated, floats({9, 8, 7, 6, 5, 4}, {3, 2}), ints({0, 0, 0}),
                     floats({1}, {1}), ints({2, 1, -1}), {.heads = 1, .kv_heads = 1});
  expect<float>(k_pages, {1, 2, 3, 4});
  expect<float>(v_pages, {5, 6, 7, 6});
}

// A NaN logit counts as the largest, the first of equal ones is chosen first, and all routing weights of the token are
// NaN.
TEST_P(GpuIndices, NaNRouterLogitsGiveNaNWeights) {
  const Tensor experts = ints(std::vector<int32_t>(4)).reshape({2, 2});
  const Tensor weights = floats(std::vector<float>(4), {2, 2});
  ops::moe_route(context_, experts, weights, floats({nan, 3, 1, -0.0F, 0, -1}, {2, 3}));
  expect<int32_t>(experts, {0, 1, 0, 1});
  expect<float>(weights, {nan, nan, 0.5F, 0.5F});
}

INSTANTIATE_TEST_SUITE_P(Sim, GpuIndices, testing::Values(32, 64),
                         [](const auto& choice) { return "sim" + std::to_string(choice.param); });

}  // namespace
}  // namespace ingot
