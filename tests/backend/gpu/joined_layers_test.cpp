// Linear layers with the same input as one gemm (ops/linear_group.h): which calls are, and that results are those of
// the layers apart.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ops/linear_glu.h"
#include "ops/linear_group.h"
#include "ops/linear_group_bytes.h"
#include "tensor/tolerance.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/ops/stored.h"
#include "tests/parity/counting_gpu.h"

namespace ingot::gpu {
namespace {

constexpr int64_t joined_tokens = 24, inputs = 64;
constexpr std::array<int64_t, 3> outputs = {32, 16, 8};
constexpr int64_t all_outputs = 56;

// Three layers [outputs, inputs] and x [joined_tokens, inputs] in bf16; their memory has gaps or none.
class JoinedLayersTest {
 public:
  JoinedLayersTest(GpuDevice& device, bool gap) : device_(device), memory_(device, size_t{1} << 20, "test") {
    register_ops(registry_, device.kind());
    x_ = upload({joined_tokens, inputs}, 1);
    for (const int64_t out : outputs) y_.push_back(memory_.allocate(DType::bf16, {joined_tokens, out}));
    for (const int64_t out : outputs) {
      weights_.push_back(weight_of(upload({out, inputs}, 1 + static_cast<uint64_t>(out))));
      if (gap) memory_.allocate_bytes(1);
    }
  }

  // All results, one layer after the other.
  std::vector<float> run() {
    Arena scratch(device_, ops::linear_group_bytes(joined_tokens, all_outputs, 2, false), "scratch");
    ops::Context context{device_, registry_, scratch, nullptr};
    ops::linear_group(context, y_, x_, weights_, {.linear = {.row_invariant = true}});
    EXPECT_EQ(scratch.used(), 0U);
    std::vector<float> values;
    for (const Tensor& each : y_) {
      std::vector<uint16_t> bits(static_cast<size_t>(each.elements()));
      device_.copy_to_host(bits.data(), each.data, each.bytes());
      for (const uint16_t value : bits) values.push_back(bf16_to_float(value));
    }
    return values;
  }
  void select(const char* implementation) { registry_.select_implementation("linear_group", implementation); }

 private:
  Tensor upload(Shape shape, uint64_t id) {
    const Tensor tensor = memory_.allocate(DType::bf16, shape);
    const std::vector<std::byte> bytes = stored(StorageType::bf16, random_values(tensor.elements(), id));
    device_.copy_from_host(tensor.data, bytes.data(), bytes.size());
    return tensor;
  }

  GpuDevice& device_;
  ops::Registry registry_;
  Arena memory_;
  Tensor x_;
  std::vector<Weight> weights_;
  std::vector<Tensor> y_;
};

TEST(JoinedLayers, HaveTheBitsOfLayersApart) {
  for (const int width : {32, 64}) {
    CountingGpu device(width);
    JoinedLayersTest layers(device, false);
    std::vector<std::string> kernels;
    device.kernels = &kernels;
    const std::vector<float> joined = layers.run();
    ASSERT_EQ(kernels.size(), 2U);
    EXPECT_EQ(kernels[1], "columns_bf16_packed");
    layers.select("apart");
    EXPECT_EQ(layers.run(), joined);
    EXPECT_EQ(kernels.size(), 2 + outputs.size());
  }
}

TEST(JoinedLayers, WithAGateHaveTheBitsOfLayersApart) {
  for (const int width : {32, 64}) {
    CountingGpu device(width);
    ops::Registry registry;
    register_ops(registry, device.kind());
    Arena memory(device, size_t{1} << 20, "test"), scratch;
    const auto upload = [&](Shape shape, uint64_t id) {
      const Tensor tensor = memory.allocate(DType::bf16, shape);
      const std::vector<std::byte> bytes = stored(StorageType::bf16, random_values(tensor.elements(), id));
      device.copy_from_host(tensor.data, bytes.data(), bytes.size());
      return tensor;
    };
    const Tensor x = upload({joined_tokens, inputs}, 1), y = memory.allocate(DType::bf16, {joined_tokens, 40});
    ops::GatedLinears layers{weight_of(upload({40, inputs}, 2)), weight_of(upload({40, inputs}, 3)),
                             memory.allocate(DType::bf16, {joined_tokens, 40}),
                             memory.allocate(DType::bf16, {joined_tokens, 40})};
    const auto run = [&] {
      ops::Context context{device, registry, scratch, nullptr};
      ops::linear_glu(context, y, x, layers, {.group = {.linear = {.row_invariant = true}}});
      std::vector<uint16_t> bits(static_cast<size_t>(y.elements()));
      device.copy_to_host(bits.data(), y.data, y.bytes());
      return bits;
    };
    std::vector<std::string> kernels;
    device.kernels = &kernels;
    const std::vector<uint16_t> joined = run();
    ASSERT_EQ(kernels.size(), 2U);
    EXPECT_EQ(kernels[1], "glu_joined_bf16_packed");
    layers.up_memory = memory.allocate(DType::bf16, {joined_tokens, 40});  // not where the gate's ends
    EXPECT_EQ(run(), joined);
    EXPECT_EQ(kernels.size(), 2U + 3U);
  }
}

TEST(JoinedLayers, AreThoseWithoutGapsInMemory) {
  CountingGpu device(32);
  JoinedLayersTest with_gap(device, true);
  const int before = device.launches;
  const std::vector<float> apart = with_gap.run();
  EXPECT_EQ(device.launches - before, std::ssize(outputs));
  EXPECT_EQ(JoinedLayersTest(device, false).run(), apart);
  with_gap.select("joined");
  EXPECT_THROW(with_gap.run(), Error);
}

TEST(JoinedLayers, AgreeWithLayersApartInLibraries) {
  for (const bool nvidia : {true, false}) {
    const ScopedVariable variable(nvidia ? "INGOT_CUBLASLT_LIBRARY" : "INGOT_HIPBLASLT_LIBRARY",
                                  nvidia ? INGOT_FAKE_CUBLASLT : INGOT_FAKE_HIPBLASLT);
    FakeDevice device(nvidia ? DeviceKind::cuda : DeviceKind::hip, nvidia ? open_cublaslt() : open_hipblaslt(),
                      nullptr);
    const auto results = [&](const char* implementation) {
      JoinedLayersTest layers(device, false);
      layers.select(implementation);
      return layers.run();
    };
    const std::vector<float> joined = results("joined"), apart = results("apart");
    ASSERT_EQ(joined.size(), apart.size());
    for (size_t i = 0; i < joined.size(); ++i) {
      const double condition = static_cast<double>(inputs) / 4;  // of products of values up to 1/2
      EXPECT_NEAR(
          joined[i], apart[i],
          2 * element_tolerance(DType::bf16, inputs, {.wanted = apart[i], .condition = condition}, Rounding::relative))
          << i;
    }
  }
}

}  // namespace
}  // namespace ingot::gpu
