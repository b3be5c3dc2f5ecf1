#include "backend/gpu/elementwise/functions.h"

namespace ingot::gpu {

struct CrossEntropyArgs {
  float* losses;
  void* dlogits;  // may be null
  const float* logits;
  const int32_t* targets;
  int64_t n;  // the vocabulary; one block per token
};

struct LogSumExpArgs {
  float* lse;
  float* at_target;
  const float* logits;
  const int32_t* targets;
  int64_t n;      // this part of the vocabulary; one block per token
  int64_t first;  // its first token
};

struct SoftmaxGradientArgs {
  void* dlogits;
  const float* logits;
  const float* lse;
  const int32_t* targets;
  int64_t n;  // as above
  int64_t first;
};

}  // namespace ingot::gpu

GPU_KERNEL_PACKS(cross_entropy, CrossEntropyArgs, 1024)
GPU_KERNEL(log_sum_exp, LogSumExpArgs, 1024)
GPU_KERNEL_PACKS(softmax_gradient, SoftmaxGradientArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 1024;

struct SharedStorage {
  float parts[threads / 32];
};

// The largest logit, and the sum of exponentials relative to it.
struct Exponentials {
  float largest;
  float total;
};

// Online softmax: the maximum so far, and the sum of exponentials relative to it.
template <int V>
GPU_FN Exponentials exponentials(const float* logits, int64_t n, float* parts) {
  float max_logit = -bits_of<float>(0x7f800000);
  float sum = 0;
  for (int64_t j = thread_index() * V; j < n; j += threads * V) {
    const auto values = load_floats<V>(logits + j);
    float new_max = max_logit;
    for (int i = 0; i < V; ++i) new_max = values.at[i] > new_max ? values.at[i] : new_max;
    if (new_max > max_logit) {
      sum *= exponential(max_logit - new_max);
      max_logit = new_max;
    }
    // The maximum itself adds 1, also if it is infinite.
    for (int i = 0; i < V; ++i) sum += values.at[i] == max_logit ? 1.0F : exponential(values.at[i] - max_logit);
  }
  const float largest = block_max<threads>(max_logit, parts);
  return {largest, block_sum<threads>(sum * exponential(max_logit - largest), parts)};
}

// What the columns of padding have (ops/matmul.h).
constexpr uint32_t lowest_bits = 0xff7fffff;

// A target outside the vocabulary, other than -1, gives NaN.
template <class D, int V>
GPU_FN void row_of(const CrossEntropyArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const float* logits = a.logits + token * a.n;
  D* dlogits = a.dlogits == nullptr ? nullptr : static_cast<D*>(a.dlogits) + token * a.n;
  const int64_t target = a.targets[token];
  if (target == -1) {
    if (thread_index() == 0) a.losses[token] = 0.0F;
    if (dlogits == nullptr) return;
    for (int64_t j = thread_index() * V; j < a.n; j += threads * V) store_floats(dlogits + j, Floats<V>{});
    return;
  }
  float at_target = target >= 0 && target < a.n ? logits[target] : not_a_number();
  if (at_target == bits_of<float>(lowest_bits)) at_target = not_a_number();

  const auto [largest, total] = exponentials<V>(logits, a.n, shared.parts);
  if (thread_index() == 0) a.losses[token] = logarithm(total) + (largest - at_target);
  if (dlogits == nullptr) return;
  const float inverse = at_target == at_target ? 1.0F / total : not_a_number();
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    auto values = load_floats<V>(logits + j);
    for (int i = 0; i < V; ++i) {
      values.at[i] = exponential(values.at[i] - largest) * inverse - (j + i == target ? 1.0F : 0.0F);
    }
    store_floats(dlogits + j, values);
  }
}

template <class D, int V>
GPU_FN void gradient_of(const SoftmaxGradientArgs& a) {
  const int64_t token = block_index();
  const float* logits = a.logits + token * a.n;
  D* dlogits = static_cast<D*>(a.dlogits) + token * a.n;
  const int64_t target = a.targets[token];
  const float lse = a.lse[token];
  for (int64_t j = thread_index() * V; j < a.n; j += 256 * V) {
    Floats<V> values{};
    if (target >= 0) {
      values = load_floats<V>(logits + j);
      for (int i = 0; i < V; ++i)
        values.at[i] = exponential(values.at[i] - lse) - (a.first + j + i == target ? 1.0F : 0.0F);
    }
    store_floats(dlogits + j, values);
  }
}

}  // namespace

GPU_KERNEL_BODY_PACKS(cross_entropy, CrossEntropyArgs, row_of)
GPU_KERNEL_BODY(log_sum_exp, LogSumExpArgs) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const float* logits = a.logits + token * a.n;
  const auto [largest, total] = exponentials<1>(logits, a.n, shared.parts);
  if (thread_index() > 0) return;
  const int64_t target = a.targets[token] - a.first;
  a.lse[token] = logarithm(total) + largest;
  a.at_target[token] = target >= 0 && target < a.n ? logits[target] : 0.0F;
}
GPU_KERNEL_BODY_PACKS(softmax_gradient, SoftmaxGradientArgs, gradient_of)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/cross_entropy.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const Tensor& losses, const Tensor& dlogits, const Tensor& logits,
         const Tensor& targets) {
  const int64_t n = logits.shape[1];
  launch(context, of_rows(cross_entropy, n, {dlogits, logits}), {logits.shape[0]},
         {losses.as<float>(), dlogits.data, logits.as<float>(), targets.as<int32_t>(), n});
}

void run_log_sum_exp(ops::Context& context, const Tensor& lse, const Tensor& at_target, const Tensor& logits,
                     const Tensor& targets, int64_t first) {
  launch(context, log_sum_exp, {logits.shape[0]},
         {lse.as<float>(), at_target.as<float>(), logits.as<float>(), targets.as<int32_t>(), logits.shape[1], first});
}

void run_softmax_gradient(ops::Context& context, const Tensor& dlogits, const Tensor& logits, const Tensor& lse,
                          const Tensor& targets, int64_t first) {
  const int64_t n = logits.shape[1];
  launch(context, of_rows(softmax_gradient, n, {dlogits, logits}), {logits.shape[0]},
         {dlogits.data, logits.as<float>(), lse.as<float>(), targets.as<int32_t>(), n, first});
}

}  // namespace

void register_cross_entropy(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::CrossEntropy>(kind, "simt", run);
  registry.add<ops::LogSumExp>(kind, "simt", run_log_sum_exp);
  registry.add<ops::SoftmaxGradient>(kind, "simt", run_softmax_gradient);
}

}  // namespace ingot::gpu
#endif
