#include "ops/layer_norm.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/layer_norm.h"
#include "ops/layer_norm_bytes.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const LayerNormKernels& K>
void run_forward(Context& context, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                 const Tensor& weight, const Tensor& bias, float epsilon) {
  const int64_t n = x.shape[1];
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
      float* means = mean ? mean.as<float>() + lo : nullptr;
      float* rstds = rstd ? rstd.as<float>() + lo : nullptr;
      const float* offsets = bias ? bias.as<float>() : nullptr;
      of_type<T>(K.forward)({elements<T>(y) + lo * n, means, rstds, elements<T>(x) + lo * n, weight.as<float>(),
                             offsets, epsilon, hi - lo, n});
    });
  });
}

template <const LayerNormKernels& K>
void run_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                  const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                  ops::LayerNormBackwardAttributes attributes) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  const int64_t blocks = (rows + ops::layer_norm_block - 1) / ops::layer_norm_block;
  const Arena::Scope scope(context.scratch);
  float* sums = static_cast<float*>(context.scratch.allocate_bytes(ops::layer_norm_bytes(rows, n)));
  float* bias_sums = sums + blocks * n;
  context.threads->parallel_for(0, rows, ops::layer_norm_block, [&](int64_t lo, int64_t hi) {
    const int64_t block = lo / ops::layer_norm_block * n;
    float* sum = dweight ? sums + block : nullptr;
    float* bias_sum = dbias ? bias_sums + block : nullptr;
    const float* means = mean.as<float>() + lo;
    const float* rstds = rstd.as<float>() + lo;
    if (x.dtype == DType::f32) {
      K.backward_f32({dx.as<float>() + lo * n, sum, bias_sum, dy.as<float>() + lo * n, x.as<float>() + lo * n,
                      weight.as<float>(), means, rstds, hi - lo, n, attributes.accumulate_dx});
    } else {
      K.backward_bf16({bf16(dx) + lo * n, sum, bias_sum, bf16(dy) + lo * n, bf16(x) + lo * n, weight.as<float>(), means,
                       rstds, hi - lo, n, attributes.accumulate_dx});
    }
  });
  const auto sum_blocks = [&](const Tensor& total, const float* parts) {
    if (!total) return;
    float* out = total.as<float>();
    context.threads->parallel_for(0, n, row_grain(blocks), [&](int64_t lo, int64_t hi) {
      K.sum_blocks(out, parts, blocks, n, lo, hi, attributes.accumulate_dweight);
    });
  };
  sum_blocks(dweight, sums);
  sum_blocks(dbias, bias_sums);
}

void reference_forward(Context& context, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, float epsilon) {
  const int64_t n = x.shape[1];
  context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += element(x, t * n + j);
      const double middle = sum / static_cast<double>(n);
      double squares = 0;
      for (int64_t j = 0; j < n; ++j) squares += std::pow(element(x, t * n + j) - middle, 2);
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(epsilon));
      if (mean) set_element(mean, t, middle);
      if (rstd) set_element(rstd, t, inverse);
      for (int64_t j = 0; j < n; ++j) {
        const double scaled = (element(x, t * n + j) - middle) * inverse * element(weight, j);
        set_element(y, t * n + j, scaled + (bias ? element(bias, j) : 0.0));
      }
    }
  });
}

void reference_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                        const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                        ops::LayerNormBackwardAttributes attributes) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  const auto unit = [&](int64_t t, int64_t j) { return (element(x, t * n + j) - element(mean, t)) * element(rstd, t); };
  context.threads->parallel_for(0, n, row_grain(rows), [&](int64_t lo, int64_t hi) {  // before dx, which may be dy
    for (int64_t j = lo; j < hi; ++j) {
      double products = 0;
      double sum = 0;
      for (int64_t t = 0; t < rows; ++t) {
        products += element(dy, t * n + j) * unit(t, j);
        sum += element(dy, t * n + j);
      }
      const bool add = attributes.accumulate_dweight;
      if (dweight) set_element(dweight, j, (add ? element(dweight, j) : 0.0) + products);
      if (dbias) set_element(dbias, j, (add ? element(dbias, j) : 0.0) + sum);
    }
  });
  context.threads->parallel_for(0, rows, row_grain(n), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      double mean_g = 0;
      double mean_gu = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double g = element(dy, t * n + j) * element(weight, j);
        mean_g += g / static_cast<double>(n);
        mean_gu += g * unit(t, j) / static_cast<double>(n);
      }
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = t * n + j;
        const double value = element(rstd, t) * (element(dy, at) * element(weight, j) - mean_g - unit(t, j) * mean_gu);
        set_element(dx, at, (attributes.accumulate_dx ? element(dx, at) : 0.0) + value);
      }
    }
  });
}

}  // namespace

void register_layer_norm(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::LayerNorm, run_forward, layer_norm_kernels);
  registry.add<ops::LayerNorm>(DeviceKind::cpu, "reference", reference_forward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::LayerNormBackward, run_backward, layer_norm_kernels);
  registry.add<ops::LayerNormBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
