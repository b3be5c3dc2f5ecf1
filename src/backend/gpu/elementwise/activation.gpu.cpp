#include "backend/gpu/elementwise/activation_functions.h"
#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

struct ActivationArgs {
  void* y;
  const void* x;
  ActivationType activation;
  int64_t n;
};

struct ActivationBackwardArgs {
  void* dx;
  const void* dy;
  const void* x;
  ActivationType activation;
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
  with_activation(a.activation, [&](auto activation) {
    map_elements<V>(
        a.n, static_cast<T*>(a.y), [](float x) { return decltype(activation)::value(x); }, static_cast<const T*>(a.x));
  });
}

template <class T, int V>
GPU_FN void backward(const ActivationBackwardArgs& a) {
  with_activation(a.activation, [&](auto activation) {
    map_elements<V>(
        a.n, static_cast<T*>(a.dx),
        [](float dy, float x) { return dy * decltype(activation)::with_derivative(x).derivative; },
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
  launch_elements(context, activation_y, {y, x}, {y.data, x.data, activation_type_of(activation), y.elements()});
}

void backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation activation) {
  launch_elements(context, activation_dx, {dx, dy, x},
                  {dx.data, dy.data, x.data, activation_type_of(activation), dx.elements()});
}

}  // namespace

void register_activation(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Activate>(kind, "simt", forward);
  registry.add<ops::ActivateBackward>(kind, "simt", backward);
}

}  // namespace ingot::gpu
#endif
