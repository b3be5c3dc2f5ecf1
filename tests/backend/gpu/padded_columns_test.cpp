// Matrices with more columns than a linear layer has outputs (ops/matmul.h, "Padded columns"): the gemms of a head
// whose vocabulary is no multiple of 8 have the values of those without padding, and vendors' libraries take them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/cross_entropy.h"
#include "ops/matmul.h"
#include "tensor/tolerance.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/ops/stored.h"

namespace ingot::gpu {
namespace {

constexpr int64_t rows = 24, out = 21, in = 64, padded = 24;

// A head W [out, in] on inputs x [rows, in], both in bf16, with logits in memory of `columns` columns.
class PaddedHead {
 public:
  PaddedHead(GpuDevice& device, int64_t columns)
      : device_(device),
        columns_(columns),
        memory_(device, size_t{1} << 20, "test"),
        x_(upload(DType::bf16, {rows, in}, wave(rows * in, 0.7))),
        weight_{.storage = StorageType::bf16,
                .data = upload(DType::bf16, {out, in}, wave(out * in, 0.3)).data,
                .out = out,
                .in = in,
                .device = &device} {
    register_ops(registry_, device.kind());
  }

  // [rows, columns]
  std::vector<float> logits() {
    const Tensor y = upload(DType::f32, {rows, columns_}, std::vector<float>(static_cast<size_t>(rows * columns_), 7));
    ops::Context context{device_, registry_, scratch_, nullptr};
    ops::linear(context, y, x_, weight_, {.row_invariant = true});
    return values_of(y);
  }
  // [rows, in], of gradients whose padding is 7 and must not matter.
  std::vector<float> input_gradient() {
    const Tensor dx = memory_.allocate(DType::f32, {rows, in});
    ops::Context context{device_, registry_, scratch_, nullptr};
    ops::linear_backward_input(context, dx, gradients(), weight_, {});
    return values_of(dx);
  }
  // [out, in], likewise.
  std::vector<float> weight_gradient() {
    const Tensor dw = memory_.allocate(DType::f32, {out, in});
    ops::Context context{device_, registry_, scratch_, nullptr};
    ops::matmul(context, dw, gradients(), x_, {.transpose_a = true, .invariance = ops::Invariance::none});
    return values_of(dw);
  }
  void select(const char* op, const char* implementation) { registry_.select_implementation(op, implementation); }

 private:
  static std::vector<float> wave(int64_t n, double step) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(std::sin(static_cast<double>(i) * step));
    return values;
  }
  Tensor upload(DType dtype, Shape shape, const std::vector<float>& values) {
    const Tensor tensor = memory_.allocate(dtype, shape);
    const std::vector<std::byte> bytes = stored(dtype == DType::f32 ? StorageType::f32 : StorageType::bf16, values);
    device_.copy_from_host(tensor.data, bytes.data(), bytes.size());
    return tensor;
  }
  Tensor gradients() {
    const std::vector<float> dense = wave(rows * out, 1.1);
    std::vector<float> values(static_cast<size_t>(rows * columns_), 7);
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(dense.begin() + row * out, out, values.begin() + row * columns_);
    return upload(DType::bf16, {rows, columns_}, values);
  }
  std::vector<float> values_of(const Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    device_.copy_to_host(values.data(), tensor.data, tensor.bytes());
    return values;
  }

  GpuDevice& device_;
  int64_t columns_;
  ops::Registry registry_;
  Arena memory_, scratch_;
  Tensor x_;
  Weight weight_;
};

// Rows of `columns` elements without their padding, each of which must be the lowest number.
std::vector<float> without_padding(const std::vector<float>& values) {
  std::vector<float> dense;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % padded < out) {
      dense.push_back(values[i]);
    } else {
      EXPECT_EQ(values[i], std::numeric_limits<float>::lowest()) << i;
    }
  }
  return dense;
}

TEST(PaddedColumns, ChangeNoBitOfOurKernels) {
  for (const int width : {32, 64}) {
    const auto device = sim::make_device(width);
    PaddedHead dense(*device, out), wide(*device, padded);
    EXPECT_EQ(without_padding(wide.logits()), dense.logits());
    EXPECT_EQ(wide.input_gradient(), dense.input_gradient());
    EXPECT_EQ(wide.weight_gradient(), dense.weight_gradient());
  }
}

// As a target beyond all columns has.
TEST(PaddedColumns, AreNoTargets) {
  const auto device = sim::make_device(32);
  ops::Registry registry;
  register_ops(registry, device->kind());
  Arena memory(*device, size_t{1} << 16, "test"), scratch;
  ops::Context context{*device, registry, scratch, nullptr};
  const Tensor logits = memory.allocate(DType::f32, {4, padded}), dlogits = memory.allocate(DType::bf16, {4, padded});
  const Tensor losses = memory.allocate(DType::f32, {4}), targets = memory.allocate(DType::i32, {4});
  std::vector<float> values(4 * padded, 0.5F);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % padded >= out) values[i] = std::numeric_limits<float>::lowest();
  }
  const std::vector<int32_t> wanted = {out - 1, out, padded - 1, padded};
  device->copy_from_host(logits.data, values.data(), logits.bytes());
  device->copy_from_host(targets.data, wanted.data(), targets.bytes());
  ops::cross_entropy(context, losses, dlogits, logits, targets);
  std::vector<float> found(4);
  std::vector<uint16_t> gradients(4 * padded);
  device->copy_to_host(found.data(), losses.data, losses.bytes());
  device->copy_to_host(gradients.data(), dlogits.data, dlogits.bytes());
  for (size_t row = 0; row < wanted.size(); ++row) {
    EXPECT_EQ(std::isnan(found[row]), row > 0) << "target " << wanted[row];
    EXPECT_EQ(std::isnan(bf16_to_float(gradients[row * padded])), row > 0) << "target " << wanted[row];
  }
}

TEST(PaddedColumns, LetLibrariesTakeTheGemms) {
  const auto reference_device = sim::make_device(32);
  PaddedHead reference(*reference_device, out);
  const ScopedVariable variable("INGOT_CUBLASLT_LIBRARY", INGOT_FAKE_CUBLASLT);
  FakeDevice device(DeviceKind::cuda, open_cublaslt(), nullptr);
  PaddedHead dense(device, out), wide(device, padded);
  for (const char* op : {"matmul", "linear", "linear_backward_input"}) {
    dense.select(op, "cublaslt");
    wide.select(op, "cublaslt");
  }
  const auto expect_near = [](const std::vector<float>& found, const std::vector<float>& wanted, int64_t terms) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const double condition = static_cast<double>(terms);  // of values up to 1
      EXPECT_NEAR(
          found[i], wanted[i],
          element_tolerance(DType::f32, terms, {.wanted = wanted[i], .condition = condition}, Rounding::relative))
          << i;
    }
  };
  EXPECT_THROW(dense.logits(), Error) << "rows that begin at no multiple of 16 bytes";
  EXPECT_THROW(dense.input_gradient(), Error);
  EXPECT_THROW(dense.weight_gradient(), Error);
  expect_near(without_padding(wide.logits()), reference.logits(), in);
  expect_near(wide.input_gradient(), reference.input_gradient(), out);
  expect_near(wide.weight_gradient(), reference.weight_gradient(), rows);
}

}  // namespace
}  // namespace ingot::gpu
