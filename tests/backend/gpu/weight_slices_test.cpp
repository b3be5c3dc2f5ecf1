// The gradient of a linear layer's input through a weight that is decoded slice by slice (backend/gpu/gemm/gemm_ops.h):
// the weights of real models that have several slices on a GPU are too large for a test.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "ops/matmul.h"
#include "tensor/tolerance.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

constexpr int64_t tokens = 5, out = 200, in = 64;
int64_t rows_64(int64_t rows, int64_t) { return std::min<int64_t>(rows, 64); }

class WeightSlices : public testing::TestWithParam<int> {
 protected:
  WeightSlices() {
    gpu::register_ops(registry_, DeviceKind::sim);
    scratch_ = Arena(*device_, size_t{1} << 20, "scratch");
  }

  Tensor upload(DType dtype, const std::vector<float>& values, int64_t columns) {
    const std::vector<std::byte> bytes = stored(dtype == DType::f32 ? StorageType::f32 : StorageType::bf16, values);
    buffers_.emplace_back(*device_, bytes.size());
    device_->copy_from_host(buffers_.back().data(), bytes.data(), bytes.size());
    return buffers_.back().view(dtype, {std::ssize(values) / columns, columns});
  }
  static std::vector<float> random(int64_t n, uint64_t id) {
    RandomStream stream(12, id);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = bf16_to_float(float_to_bf16(stream.uniform() - 0.5F));
    return values;
  }
  Weight weight() {
    const std::vector<std::byte> bytes = stored(StorageType::q8_0, random(out * in, 1));
    buffers_.emplace_back(*device_, bytes.size());
    device_->copy_from_host(buffers_.back().data(), bytes.data(), bytes.size());
    return {
        .storage = StorageType::q8_0, .data = buffers_.back().data(), .out = out, .in = in, .device = device_.get()};
  }
  template <class T>
  std::vector<T> values_of(const Tensor& tensor) {
    std::vector<T> values(static_cast<size_t>(tensor.elements()));
    device_->copy_to_host(values.data(), tensor.data, tensor.bytes());
    return values;
  }

  std::unique_ptr<gpu::GpuDevice> device_ = gpu::sim::make_device(GetParam(), gpu::sim::Schedule::forward);
  ops::Registry registry_;
  Arena scratch_;
  std::deque<Buffer> buffers_;
  ops::Context context_{*device_, registry_, scratch_, nullptr};
};

// In bf16 it is the sum in fp32 over all slices, rounded once.
TEST_P(WeightSlices, AreSummedInFp32AndRoundedOnce) {
  const Weight w = weight();
  const Tensor dy = upload(DType::bf16, random(tokens * out, 2), out);
  for (const bool accumulate : {false, true}) {
    const std::vector<float> before = random(tokens * in, 3);
    const Tensor sum = upload(DType::f32, before, in), rounded = upload(DType::bf16, before, in);
    const Tensor whole = upload(DType::f32, before, in);
    const ops::LinearAttributes attributes{.accumulate = accumulate};
    gpu::run_linear_backward_input<gpu::multiply_tiles, rows_64>(context_, sum, dy, w, attributes);
    gpu::run_linear_backward_input<gpu::multiply_tiles, rows_64>(context_, rounded, dy, w, attributes);
    ops::linear_backward_input(context_, whole, dy, w, attributes);
    const std::vector<float> sums = values_of<float>(sum), wholes = values_of<float>(whole);
    const std::vector<uint16_t> bits = values_of<uint16_t>(rounded);
    double norm = 0, error = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(bits[i], float_to_bf16(sums[i])) << i;
      norm += static_cast<double>(wholes[i]) * static_cast<double>(wholes[i]);
      error += std::pow(static_cast<double>(sums[i]) - static_cast<double>(wholes[i]), 2);
    }
    EXPECT_GT(norm, 0);
    EXPECT_LE(std::sqrt(error / norm), tolerance(DType::f32, out));
  }
  EXPECT_EQ(scratch_.used(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Sim, WeightSlices, testing::Values(32, 64),
                         [](const auto& width) { return "sim" + std::to_string(width.param); });

}  // namespace
}  // namespace ingot
