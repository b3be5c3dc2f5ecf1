// Gemms by the vendor's library, where it supports them.
#include <fmt/format.h>

#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"
#include "ops/linear_bias.h"
#include "ops/linear_fp8.h"
#include "tensor/fp8.h"

namespace ingot::gpu {
namespace {

using ops::Context;

const char* library_name(DeviceKind kind) { return kind == DeviceKind::cuda ? "cublaslt" : "hipblaslt"; }

void multiply(Context& context, const Gemm& product) {
  GpuDevice& device = device_of(context);
  MatmulLibrary& library = device.matmul_library();
  void* const workspace = device.library_workspace();
  device.run_in_library(device.kind() == DeviceKind::cuda ? "cuBLASLt" : "hipBLASLt",
                        [&](void* stream) { library.multiply(product, workspace, stream); });
}

bool decline(const Context& context, const Gemm& product, ops::Refusal refuse) {
  GpuDevice& device = device_of(context);
  MatmulLibrary& library = device.matmul_library();
  const std::string_view reason = library.decline(product);
  if (reason.empty()) return false;
  if (device.logs() && product.m > 0) {
    // A reason may name m, of which a run has many: one line for each class of gemms that share an algorithm.
    const int64_t rows = row_bucket(product.m);
    const std::string call = library.is_absent() ? "gemms"
                                                 : fmt::format("gemms of {} with up to {} rows, n {} and k {}",
                                                               product.in == DType::u8 ? "fp8" : name(product.in), rows,
                                                               product.n, product.k);
    device.log_once(call, fmt::format("{}: our kernels run {}, not {}: {}", device.name(), call,
                                      library_name(device.kind()), reason));
  }
  return refuse("{}", reason);
}

// Whether the library declines the gemms with a weight's first and last slice of rows; the slices between are like the
// first. Decoded rows lie in scratch, which is aligned.
template <class Product>
bool decline_slices(const Context& context, const Weight& weight, DType dtype, ops::Refusal refuse, Product product) {
  if (in_place(weight, dtype)) return decline(context, product(WeightRows{0, weight.out, weight.data}), refuse);
  const int64_t max_rows = decoded_rows(weight.out, weight.in);
  if (max_rows == 0) return refuse("out or in is 0");
  const int64_t last = (weight.out - 1) / max_rows * max_rows;
  return decline(context, product(WeightRows{0, max_rows, nullptr}), refuse) ||
         (last > 0 && decline(context, product(WeightRows{last, weight.out - last, nullptr}), refuse));
}

bool decline_matmul(const Context& context, const Tensor& c, const Tensor& a, const Tensor& b,
                    ops::MatmulAttributes attributes, ops::Refusal refuse) {
  return decline(context, gemm_of(c, a, b, attributes), refuse);
}

bool decline_linear(const Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                    ops::LinearAttributes attributes, ops::Refusal refuse) {
  return decline_slices(context, weight, x.dtype, refuse, [&](WeightRows slice) {
    return linear_gemm(y, x, weight, slice, addend_of(y, attributes), attributes.invariance);
  });
}

bool decline_linear_backward_input(const Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                                   ops::LinearAttributes attributes, ops::Refusal refuse) {
  Tensor sums = dx;
  if (staged(dx, dy, weight)) {
    sums.data = nullptr;
    sums.dtype = DType::f32;
  }
  return decline_slices(context, weight, dy.dtype, refuse, [&](WeightRows slice) {
    return input_gradient_gemm(sums, dy, weight, slice, attributes.accumulate, attributes.invariance);
  });
}

Gemm bias_gemm(const Tensor& y, const Tensor& x, const Weight& weight, const void* bias,
               const ops::LinearAttributes& attributes) {
  Gemm product =
      linear_gemm(y, x, weight, {0, weight.out, weight.data}, addend_of(y, attributes), attributes.invariance);
  product.bias = bias;
  return product;
}

void run_linear_bias(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& bias,
                     ops::LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  Tensor own = bias;
  if (y.dtype != bias.dtype) {
    own = context.scratch.allocate(y.dtype, bias.shape);
    ops::scale(context, own, bias, 1);
  }
  multiply(context, bias_gemm(y, x, weight, own.data, attributes));
}

bool decline_linear_bias(const Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                         const Tensor& bias, ops::LinearAttributes attributes, ops::Refusal refuse) {
  if (!in_place(weight, x.dtype)) return refuse("decodes no weights");
  if (!attributes.row_invariant && x.shape[0] <= ops::max_skinny_rows)
    return refuse("leaves few tokens to our kernels");
  return decline(context, bias_gemm(y, x, weight, bias.data, attributes), refuse);
}

// The gemm y (+)= x W^T of fp8 codes, without the scales.
Gemm fp8_product(const Context& context, const Tensor& y, const Weight& x, const Weight& weight,
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
          .addend = addend_of(y, attributes),
          .in = DType::u8,
          .out = y.dtype,
          .fnuz = context.device.arch() == "gfx942",
          .invariance = attributes.invariance};
}

void run_linear_fp8(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                    ops::LinearAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  const Tensor x_scales = context.scratch.allocate(DType::f32, {x.out});
  const Tensor weight_scales = context.scratch.allocate(DType::f32, {weight.out});
  ops::fp8_scales(context, x_scales, x);
  ops::fp8_scales(context, weight_scales, weight);
  Gemm product = fp8_product(context, y, x, weight, attributes);
  product.a_scales = x_scales.as<float>();
  product.b_scales = weight_scales.as<float>();
  multiply(context, product);
}

bool decline_linear_fp8(const Context& context, const Tensor& y, const Weight& x, const Weight& weight,
                        ops::LinearAttributes attributes, ops::Refusal refuse) {
  return decline(context, fp8_product(context, y, x, weight, attributes), refuse);
}

}  // namespace

void GpuDevice::run_in_library(const char*, FunctionRef<void(void*)> call) { call(native_stream(Stream::compute)); }

MatmulLibrary& GpuDevice::matmul_library() {
  throw_error(ErrorKind::internal, "{} has no vendor BLAS library", name());
}

void* GpuDevice::library_workspace() {
  throw_error(ErrorKind::internal, "{} has no workspace for vendor libraries", name());
}

void register_vendor_matmul(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::sim) return;
  const char* name = library_name(kind);
  registry.add<ops::Matmul>(kind, name, run_matmul<multiply>, decline_matmul);
  registry.add<ops::Linear>(kind, name, run_linear<multiply>, decline_linear);
  registry.add<ops::LinearBackwardInput>(kind, name, run_linear_backward_input<multiply>,
                                         decline_linear_backward_input);
  registry.add<ops::LinearBias>(kind, name, run_linear_bias, decline_linear_bias);
}

void register_vendor_linear_fp8(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::sim) return;
  // Not the input's gradient: its k runs over rows of the weight, and the libraries support fp8 only in the TN layout.
  registry.add<ops::GemmFp8>(kind, library_name(kind), run_linear_fp8, decline_linear_fp8);
}

}  // namespace ingot::gpu
