#include "backend/gpu/elementwise/curves.h"
#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

struct ActivationArgs {
  void* y;
  const void* x;
  Curve curve;
  int64_t n;
};

struct ActivationBackwardArgs {
  void* dx;
  const void* dy;
  const void* x;
  Curve curve;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(activation_y, ActivationArgs, 256)
GPU_KERNEL_PACKS(activation_dx, ActivationBackwardArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void forward(const ActivationArgs& a) {
  with_curve(a.curve, [&](auto curve) {
    map_elements<V>(
        a.n, static_cast<T*>(a.y), [](float x) { return decltype(curve)::value(x); }, static_cast<const T*>(a.x));
  });
}

template <class T, int V>
GPU_FN void backward(const ActivationBackwardArgs& a) {
  with_curve(a.curve, [&](auto curve) {
    map_elements<V>(
        a.n, static_cast<T*>(a.dx), [](float dy, float x) { return dy * decltype(curve)::both(x).slope; },
        static_cast<const T*>(a.dy), static_cast<const T*>(a.x));
  });
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(activation_y, ActivationArgs, forward)
GPU_KERNEL_BODY_PACKS(activation_dx, ActivationBackwardArgs, backward)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void forward(Context& context, const Tensor& y, const Tensor& x, ops::Activation activation) {
  launch_elements(context, activation_y, {y, x}, {y.data, x.data, curve_of(activation), y.elements()});
}

void backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation activation) {
  launch_elements(context, activation_dx, {dx, dy, x}, {dx.data, dy.data, x.data, curve_of(activation), dx.elements()});
}

}  // namespace

void register_activation(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Activate>(kind, "simt", forward);
  registry.add<ops::ActivateBackward>(kind, "simt", backward);
}

}  // namespace ingot::gpu
#endif
