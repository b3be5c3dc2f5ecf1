// Matrix products by the vendor's library, where it takes them.
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/products.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

using ops::Context;

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

}  // namespace

void GpuDevice::call_library(const char*, FunctionRef<void(void*)> call) { call(native_stream(Stream::compute)); }

MatmulLibrary& GpuDevice::matmul_library() {
  throw_error(ErrorKind::internal, "{} has no vendor's library of matrix products", name());
}

void register_vendor_matmul(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::sim) return;
  const char* name = kind == DeviceKind::cuda ? "cublaslt" : "hipblaslt";
  registry.add<ops::Matmul>(kind, name, run_matmul<multiply>, decline_matmul);
  registry.add<ops::Linear>(kind, name, run_linear<multiply>, decline_linear);
  registry.add<ops::LinearBackwardInput>(kind, name, run_linear_backward_input<multiply>,
                                         decline_linear_backward_input);
}

}  // namespace ingot::gpu
