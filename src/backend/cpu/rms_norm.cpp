#include "ops/rms_norm.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/rms_norm.h"
#include "ops/rms_norm_bytes.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const RmsNormKernels& K>
void run_forward(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                 ops::RmsNormAttributes attributes) {
  const int64_t n = x.shape[1];
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
      float* rstd_rows = rstd ? rstd.as<float>() + lo : nullptr;
      of_type<T>(K.forward)({elements<T>(y) + lo * n, rstd_rows, elements<T>(x) + lo * n, weight.as<float>(),
                             attributes.epsilon, attributes.weight_offset, hi - lo, n});
    });
  });
}

template <const RmsNormKernels& K>
void run_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                  const Tensor& weight, const Tensor& rstd, ops::RmsNormBackwardAttributes attributes) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  const int64_t blocks = (rows + ops::rms_norm_block - 1) / ops::rms_norm_block;
  const Arena::Scope scope(context.scratch);
  float* sums = dweight ? static_cast<float*>(context.scratch.allocate_bytes(ops::rms_norm_bytes(rows, n))) : nullptr;
  context.threads->parallel_for(0, rows, ops::rms_norm_block, [&](int64_t lo, int64_t hi) {
    float* sum = dweight ? sums + lo / ops::rms_norm_block * n : nullptr;
    const float* scales = weight.as<float>();
    const float* rstd_rows = rstd.as<float>() + lo;
    if (x.dtype == DType::f32) {
      K.backward_f32({dx.as<float>() + lo * n, sum, dy.as<float>() + lo * n, x.as<float>() + lo * n, scales, rstd_rows,
                      attributes.weight_offset, hi - lo, n, attributes.accumulate_dx});
    } else {
      K.backward_bf16({bf16(dx) + lo * n, sum, bf16(dy) + lo * n, bf16(x) + lo * n, scales, rstd_rows,
                       attributes.weight_offset, hi - lo, n, attributes.accumulate_dx});
    }
  });
  if (!dweight) return;
  context.threads->parallel_for(0, n, row_grain(blocks), [&](int64_t lo, int64_t hi) {
    K.sum_blocks(dweight.as<float>(), sums, blocks, n, lo, hi, attributes.accumulate_dweight);
  });
}

void reference_forward(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                       ops::RmsNormAttributes attributes) {
  const auto offset = static_cast<double>(attributes.weight_offset);
  const int64_t n = x.shape[1];
  context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      double squares = 0;
      for (int64_t j = 0; j < n; ++j) squares += element(x, t * n + j) * element(x, t * n + j);
      const double inverse =
          1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(attributes.epsilon));
      if (rstd) set_element(rstd, t, inverse);
      for (int64_t j = 0; j < n; ++j)
        set_element(y, t * n + j, element(x, t * n + j) * inverse * (offset + element(weight, j)));
    }
  });
}

void reference_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                        const Tensor& weight, const Tensor& rstd, ops::RmsNormBackwardAttributes attributes) {
  const auto offset = static_cast<double>(attributes.weight_offset);
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  if (dweight) {  // before dx is written: dx may be dy
    context.threads->parallel_for(0, n, row_grain(rows), [&](int64_t lo, int64_t hi) {
      for (int64_t j = lo; j < hi; ++j) {
        double sum = attributes.accumulate_dweight ? element(dweight, j) : 0.0;
        for (int64_t t = 0; t < rows; ++t) sum += element(dy, t * n + j) * element(x, t * n + j) * element(rstd, t);
        set_element(dweight, j, sum);
      }
    });
  }
  context.threads->parallel_for(0, rows, row_grain(n), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      const double r = element(rstd, t);
      double products = 0;
      for (int64_t j = 0; j < n; ++j) {
        products += element(dy, t * n + j) * (offset + element(weight, j)) * element(x, t * n + j);
      }
      const double pull = r * r * products / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = t * n + j;
        const double value = r * (element(dy, at) * (offset + element(weight, j)) - element(x, at) * pull);
        set_element(dx, at, (attributes.accumulate_dx ? element(dx, at) : 0.0) + value);
      }
    }
  });
}

}  // namespace

void register_rms_norm(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::RmsNorm, run_forward, rms_norm_kernels);
  registry.add<ops::RmsNorm>(DeviceKind::cpu, "reference", reference_forward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::RmsNormBackward, run_backward, rms_norm_kernels);
  registry.add<ops::RmsNormBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
