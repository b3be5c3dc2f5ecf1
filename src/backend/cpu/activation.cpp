#include "backend/cpu/activation.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/activation.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const ActivationKernels& K>
void run_forward(Context& context, const Tensor& y, const Tensor& x, ops::Activation activation) {
  const auto which = static_cast<size_t>(activation);
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
      of_type<T>(K.forward[which])(elements<T>(y) + lo, elements<T>(x) + lo, hi - lo);
    });
  });
}

template <const ActivationKernels& K>
void run_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation activation) {
  const auto which = static_cast<size_t>(activation);
  context.threads->parallel_for(0, dx.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (dx.dtype == DType::f32) {
      K.backward_f32[which](dx.as<float>() + lo, dy.as<float>() + lo, x.as<float>() + lo, hi - lo);
    } else {
      K.backward_bf16[which](bf16(dx) + lo, bf16(dy) + lo, bf16(x) + lo, hi - lo);
    }
  });
}

void reference_forward(Context& context, const Tensor& y, const Tensor& x, ops::Activation activation) {
  context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) set_element(y, i, activate(activation, element(x, i)).value);
  });
}

void reference_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x,
                        ops::Activation activation) {
  context.threads->parallel_for(0, dx.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) set_element(dx, i, element(dy, i) * activate(activation, element(x, i)).slope);
  });
}

}  // namespace

void register_activation(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Activate, run_forward, activation_kernels);
  registry.add<ops::Activate>(DeviceKind::cpu, "reference", reference_forward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::ActivateBackward, run_backward, activation_kernels);
  registry.add<ops::ActivateBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
