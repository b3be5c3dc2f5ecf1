// Matrix products by the vendor's library, where it takes them.
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/products.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"
#include "ops/linear_fp8.h"
#include "tensor/fp8.h"

namespace ingot::gpu {
namespace {

using ops::Context;

const char* library_name(DeviceKind kind) { return kind == DeviceKind::cuda ? "cublaslt" : "hipblaslt"; }

void multiply(Context& context, const MatrixProduct& product) {
  GpuDevice& device = device_of(context);
  MatmulLibrary& library = device.matmul_library();
  device.call_library(device.kind() == DeviceKind::cuda ? "cuBLASLt" : "hipBLASLt",
                      [&](void* stream) { library.multiply(product, stream); });
}

std::string decline(const Context& context, const MatrixProduct& product) {
  return device_of(context).matmul_library().decline(product);
}

// What the library says of the products with a weight's first and last rows; others are as the first. Decoded rows lie
// in scratch, which is aligned.
template <class Product>
std::string decline_slices(const Context& context, const Weight& weight, DType dtype, Product product) {
  if (in_place(weight, dtype)) return decline(context, product(WeightRows{0, weight.out, weight.data}));
  const int64_t most = ops::decoded_rows(weight.out, weight.in);
  if (most == 0) return "an empty product";
  const int64_t last = (weight.out - 1) / most * most;
  std::string reason = decline(context, product(WeightRows{0, most, nullptr}));
  if (reason.empty() && last > 0) reason = decline(context, product(WeightRows{last, weight.out - last, nullptr}));
  return reason;
}

std::string decline_matmul(const Context& context, const Tensor& c, const Tensor& a, const Tensor& b,
                           ops::MatmulAttributes attributes) {
  return decline(context, product_of(c, a, b, attributes));
}

std::string decline_linear(const Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                           ops::LinearAttributes attributes) {
  return decline_slices(context, weight, x.dtype,
                        [&](WeightRows slice) { return linear_product(y, x, weight, slice, attributes.accumulate); });
}

std::string decline_linear_backward_input(const Context& context, const Tensor& dx, const Tensor& dy,
                                          const Weight& weight, ops::LinearAttributes attributes) {
  Tensor sums = dx;
  if (staged(dx, dy, weight)) {
    sums.data = nullptr;
    sums.dtype = DType::f32;
  }
  return decline_slices(context, weight, dy.dtype, [&](WeightRows slice) {
    return input_gradient_product(sums, dy, weight, slice, attributes.accumulate);
  });
}

// y (+)= x W^T of codes, without scales.
MatrixProduct fp8_product(const Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                          ops::LinearAttributes attributes) {
  const auto row = static_cast<int64_t>(fp8_row_bytes(x.in));
  return {.c = y.data,
          .a = x.data,
          .b = weight.data,
          .m = x.out,
          .n = weight.out,
          .k = x.in,
          .lda = row,
          .ldb = row,
          .ldc = weight.out,
          .transpose_b = true,
          .accumulate = attributes.accumulate,
          .in = DType::u8,
          .out = y.dtype,
          .fnuz = context.device.arch() == "gfx942"};
}

void run_linear_fp8(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                    ops::LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  const Tensor x_scales = context.scratch.take(DType::f32, {x.out});
  const Tensor weight_scales = context.scratch.take(DType::f32, {weight.out});
  ops::fp8_scales(context, x_scales, x);
  ops::fp8_scales(context, weight_scales, weight);
  MatrixProduct product = fp8_product(context, y, x, weight, attributes);
  product.a_scales = x_scales.as<float>();
  product.b_scales = weight_scales.as<float>();
  multiply(context, product);
}

std::string decline_linear_fp8(const Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                               ops::LinearAttributes attributes) {
  return decline(context, fp8_product(context, y, x, weight, attributes));
}

}  // namespace

void GpuDevice::call_library(const char*, FunctionRef<void(void*)> call) { call(native_stream(Stream::compute)); }

MatmulLibrary& GpuDevice::matmul_library() {
  throw_error(ErrorKind::internal, "{} has no vendor's library of matrix products", name());
}

void register_vendor_matmul(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::sim) return;
  const char* name = library_name(kind);
  registry.add<ops::Matmul>(kind, name, run_matmul<multiply>, decline_matmul);
  registry.add<ops::Linear>(kind, name, run_linear<multiply>, decline_linear);
  registry.add<ops::LinearBackwardInput>(kind, name, run_linear_backward_input<multiply>,
                                         decline_linear_backward_input);
}

void register_vendor_linear_fp8(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::sim) return;
  // The gradient of the input stays ours: along k, which are rows of the weight, the libraries take no codes (TN only).
  registry.add<ops::ProductFp8>(kind, library_name(kind), run_linear_fp8, decline_linear_fp8);
}

}  // namespace ingot::gpu
