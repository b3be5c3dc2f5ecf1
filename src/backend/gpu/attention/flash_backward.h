// What the kernels of flash attention's backward pass share (attention_mma_backward.gpu.cpp,
// arch/attention_backward_sm90.gpu.cpp).
#pragma once

#include "backend/gpu/attention/flash.h"

namespace ingot::gpu {

struct FlashArgs {
  PackedAttentionArgs packed;
  float* delta;  // [heads, queries]: <dout, out>, computed by the first kernel of the backward pass
};

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Of a query and a key: the attention weight, and the gradient with respect to scale <q, k>.
struct WeightAndGradient {
  float weight, dscore;
};
// product: <q, k>; dweight: <dout, v>; lse: the base-2 logarithm of the sum of exponentials.
template <bool plain>
GPU_FN WeightAndGradient gradient_of(const Exponents& exponents, float product, float dweight, float lse, float delta,
                                     float slope, int distance) {
  Exponents::ModifiedScore score{product, 1.0F};
  if constexpr (!plain) score = exponents.modified(product, slope, distance);
  const float weight = exp2_approx(fma(score.value, exponents.factor, -lse));
  return {weight, plain ? weight * (dweight - delta) : weight * (dweight - delta) * score.derivative};
}
// Calls body<true>() for plain exponents, else body<false>().
template <class Body>
GPU_FN void with_plain(const Exponents& exponents, Body body) {
  if (exponents.plain) {
    body.template operator()<true>();
  } else {
    body.template operator()<false>();
  }
}

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {

// The arguments of a call's kernels, with delta in the context's scratch memory (ops::attention_backward_bytes). The
// kernel that computes delta is launched.
FlashArgs launch_delta(ops::Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                       const ops::AttentionSaved& saved, const Tensor& offsets,
                       const ops::AttentionAttributes& attributes);

}  // namespace ingot::gpu
#endif
