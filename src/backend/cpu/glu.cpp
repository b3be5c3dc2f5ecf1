#include "ops/glu.h"

#include "backend/cpu/activation.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/glu.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const GluKernels& K>
void run_forward(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up, ops::Activation activation) {
  const auto which = static_cast<size_t>(activation);
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
      of_type<T>(K.forward[which])(elements<T>(y) + lo, elements<T>(gate) + lo, elements<T>(up) + lo, hi - lo);
    });
  });
}

template <const GluKernels& K>
void run_joined(Context& context, const Tensor& y, const Tensor& x, ops::Activation activation) {
  const auto which = static_cast<size_t>(activation);
  const int64_t width = y.shape[1];
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
      for (int64_t row = lo; row < hi; ++row) {
        const T* gate = elements<T>(x) + row * 2 * width;
        of_type<T>(K.forward[which])(elements<T>(y) + row * width, gate, gate + width, width);
      }
    });
  });
}

template <const GluKernels& K>
void run_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                  const Tensor& up, ops::Activation activation) {
  const auto which = static_cast<size_t>(activation);
  context.threads->parallel_for(0, dy.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (dy.dtype == DType::f32) {
      K.backward_f32[which](dgate.as<float>() + lo, dup.as<float>() + lo, dy.as<float>() + lo, gate.as<float>() + lo,
                            up.as<float>() + lo, hi - lo);
    } else {
      K.backward_bf16[which](bf16(dgate) + lo, bf16(dup) + lo, bf16(dy) + lo, bf16(gate) + lo, bf16(up) + lo, hi - lo);
    }
  });
}

void reference_forward(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up,
                       ops::Activation activation) {
  context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      set_element(y, i, activate(activation, element(gate, i)).value * element(up, i));
    }
  });
}

void reference_joined(Context&, const Tensor& y, const Tensor& x, ops::Activation activation) {
  const int64_t width = y.shape[1];
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t gate = i / width * 2 * width + i % width;
    set_element(y, i, activate(activation, element(x, gate)).value * element(x, gate + width));
  }
}

void reference_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                        const Tensor& up, ops::Activation activation) {
  context.threads->parallel_for(0, dy.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const auto [value, slope] = activate(activation, element(gate, i));
      const double dy_i = element(dy, i);
      set_element(dgate, i, dy_i * element(up, i) * slope);
      set_element(dup, i, dy_i * value);
    }
  });
}

}  // namespace

void register_glu(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Glu, run_forward, glu_kernels);
  registry.add<ops::Glu>(DeviceKind::cpu, "reference", reference_forward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::GluJoined, run_joined, glu_kernels);
  registry.add<ops::GluJoined>(DeviceKind::cpu, "reference", reference_joined);
  INGOT_ADD_LEVELS(registry, levels.best, ops::GluBackward, run_backward, glu_kernels);
  registry.add<ops::GluBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
