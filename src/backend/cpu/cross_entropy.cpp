#include "ops/cross_entropy.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/cross_entropy.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// The target of row t, checked because the kernels index with it. -1: not in the loss.
int64_t target_of(const Tensor& targets, int64_t t, int64_t vocabulary) {
  const int64_t target = targets.as<int32_t>()[t];
  if (target < -1 || target >= vocabulary) {
    throw_error(ErrorKind::internal, "cross_entropy: target {} of token {} is outside the vocabulary of {}", target, t,
                vocabulary);
  }
  return target;
}

template <const CrossEntropyKernels& K>
void run(Context& context, const Tensor& losses, const Tensor& dlogits, const Tensor& logits, const Tensor& targets) {
  const int64_t width = logits.shape[1];
  const bool single = dlogits && dlogits.dtype == DType::f32;
  const bool half = dlogits && dlogits.dtype == DType::bf16;
  context.threads->parallel_for(0, logits.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      float* to_float = single ? dlogits.as<float>() + t * width : nullptr;
      Bf16* to_bf16 = half ? bf16(dlogits) + t * width : nullptr;
      const int64_t target = target_of(targets, t, width);
      if (target >= 0) {
        losses.as<float>()[t] = K.row(logits.as<float>() + t * width, width, target, to_float, to_bf16);
        continue;
      }
      losses.as<float>()[t] = 0.0F;
      if (dlogits) {
        const size_t bytes = static_cast<size_t>(width) * size_of(dlogits.dtype);
        std::memset(static_cast<std::byte*>(dlogits.data) + static_cast<size_t>(t) * bytes, 0, bytes);
      }
    }
  });
}

void reference(Context&, const Tensor& losses, const Tensor& dlogits, const Tensor& logits, const Tensor& targets) {
  const int64_t width = logits.shape[1];
  for (int64_t t = 0; t < logits.shape[0]; ++t) {
    const int64_t target = target_of(targets, t, width);
    const float* row = logits.as<float>() + t * width;
    const double top = static_cast<double>(*std::max_element(row, row + width));
    double total = 0;
    for (int64_t i = 0; i < width; ++i) total += std::exp(static_cast<double>(row[i]) - top);
    const double at_target = target < 0 ? 0.0 : static_cast<double>(row[target]);
    set_element(losses, t, target < 0 ? 0.0 : std::log(total) + top - at_target);
    for (int64_t i = 0; dlogits && i < width; ++i) {
      const double share = std::exp(static_cast<double>(row[i]) - top) / total - (i == target ? 1.0 : 0.0);
      set_element(dlogits, t * width + i, target < 0 ? 0.0 : share);
    }
  }
}

template <const CrossEntropyKernels& K>
void run_log_sum_exp(Context& context, const Tensor& lse, const Tensor& at_target, const Tensor& logits,
                     const Tensor& targets, int64_t first) {
  const int64_t width = logits.shape[1];
  context.threads->parallel_for(0, logits.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      const float* row = logits.as<float>() + t * width;
      const int64_t target = targets.as<int32_t>()[t] - first;
      lse.as<float>()[t] = K.log_sum_exp(row, width);
      at_target.as<float>()[t] = target >= 0 && target < width ? row[target] : 0.0F;
    }
  });
}

template <const CrossEntropyKernels& K>
void run_softmax_gradient(Context& context, const Tensor& dlogits, const Tensor& logits, const Tensor& lse,
                          const Tensor& targets, int64_t first) {
  const int64_t width = logits.shape[1];
  const bool single = dlogits.dtype == DType::f32;
  context.threads->parallel_for(0, logits.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      const int64_t target = targets.as<int32_t>()[t];
      if (target < 0) {
        const size_t bytes = static_cast<size_t>(width) * size_of(dlogits.dtype);
        std::memset(static_cast<std::byte*>(dlogits.data) + static_cast<size_t>(t) * bytes, 0, bytes);
        continue;
      }
      K.gradient(logits.as<float>() + t * width, width, lse.as<float>()[t], target - first,
                 single ? dlogits.as<float>() + t * width : nullptr, single ? nullptr : bf16(dlogits) + t * width);
    }
  });
}

void reference_log_sum_exp(Context&, const Tensor& lse, const Tensor& at_target, const Tensor& logits,
                           const Tensor& targets, int64_t first) {
  const int64_t width = logits.shape[1];
  for (int64_t t = 0; t < logits.shape[0]; ++t) {
    const float* row = logits.as<float>() + t * width;
    const double top = static_cast<double>(*std::max_element(row, row + width));
    double total = 0;
    for (int64_t i = 0; i < width; ++i) total += std::exp(static_cast<double>(row[i]) - top);
    const int64_t target = targets.as<int32_t>()[t] - first;
    set_element(lse, t, std::log(total) + top);
    set_element(at_target, t, target >= 0 && target < width ? static_cast<double>(row[target]) : 0.0);
  }
}

void reference_softmax_gradient(Context&, const Tensor& dlogits, const Tensor& logits, const Tensor& lse,
                                const Tensor& targets, int64_t first) {
  const int64_t width = logits.shape[1];
  for (int64_t t = 0; t < logits.shape[0]; ++t) {
    const int64_t target = targets.as<int32_t>()[t];
    for (int64_t i = 0; i < width; ++i) {
      const double share =
          std::exp(element(logits, t * width + i) - element(lse, t)) - (first + i == target ? 1.0 : 0.0);
      set_element(dlogits, t * width + i, target < 0 ? 0.0 : share);
    }
  }
}

}  // namespace

void register_cross_entropy(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::CrossEntropy, run, cross_entropy_kernels);
  registry.add<ops::CrossEntropy>(DeviceKind::cpu, "reference", reference);
  INGOT_ADD_LEVELS(registry, levels.best, ops::LogSumExp, run_log_sum_exp, cross_entropy_kernels);
  registry.add<ops::LogSumExp>(DeviceKind::cpu, "reference", reference_log_sum_exp);
  INGOT_ADD_LEVELS(registry, levels.best, ops::SoftmaxGradient, run_softmax_gradient, cross_entropy_kernels);
  registry.add<ops::SoftmaxGradient>(DeviceKind::cpu, "reference", reference_softmax_gradient);
}

}  // namespace ingot::cpu
