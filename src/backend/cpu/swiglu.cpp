#include "ops/swiglu.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/swiglu.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const SwigluKernels& K>
void run_forward(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up) {
  context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (y.dtype == DType::f32) {
      K.forward_f32(y.as<float>() + lo, gate.as<float>() + lo, up.as<float>() + lo, hi - lo);
    } else {
      K.forward_bf16(bf16(y) + lo, bf16(gate) + lo, bf16(up) + lo, hi - lo);
    }
  });
}

template <const SwigluKernels& K>
void run_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                  const Tensor& up) {
  context.threads->parallel_for(0, dy.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (dy.dtype == DType::f32) {
      K.backward_f32(dgate.as<float>() + lo, dup.as<float>() + lo, dy.as<float>() + lo, gate.as<float>() + lo,
                     up.as<float>() + lo, hi - lo);
    } else {
      K.backward_bf16(bf16(dgate) + lo, bf16(dup) + lo, bf16(dy) + lo, bf16(gate) + lo, bf16(up) + lo, hi - lo);
    }
  });
}

void reference_forward(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up) {
  context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const double z = element(gate, i);
      set_element(y, i, z / (1.0 + std::exp(-z)) * element(up, i));
    }
  });
}

void reference_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                        const Tensor& up) {
  context.threads->parallel_for(0, dy.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const double z = element(gate, i);
      const double u = element(up, i);
      const double g = element(dy, i);
      const double s = 1.0 / (1.0 + std::exp(-z));
      set_element(dgate, i, g * u * s * (1.0 + z * (1.0 - s)));
      set_element(dup, i, g * z * s);
    }
  });
}

}  // namespace

void register_swiglu(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Swiglu, run_forward, swiglu_kernels);
  registry.add<ops::Swiglu>(DeviceKind::cpu, "reference", reference_forward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::SwigluBackward, run_backward, swiglu_kernels);
  registry.add<ops::SwigluBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
