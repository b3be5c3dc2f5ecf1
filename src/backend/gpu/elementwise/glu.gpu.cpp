#include "backend/gpu/elementwise/activation_functions.h"
#include "backend/gpu/elementwise/elements.h"
#include "backend/gpu/rows.h"

namespace ingot::gpu {

struct GluArgs {
  void* y;
  const void* gate;
  const void* up;
  ActivationType activation;
  int64_t n;
};

struct GluJoinedArgs {
  void* y;
  const void* x;
  ActivationType activation;
  int64_t n;  // features; one block per row
};

struct GluBackwardArgs {
  void* dgate;
  void* dup;
  const void* dy;
  const void* gate;
  const void* up;
  ActivationType activation;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(glu, GluArgs, 256)
GPU_KERNEL_FORWARD_PACKS(glu_joined, GluJoinedArgs, 256)
GPU_KERNEL_PACKS(glu_backward, GluBackwardArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void forward(const GluArgs& a) {
  with_activation(a.activation, [&](auto activation) {
    map_elements<V>(
        a.n, static_cast<T*>(a.y), [](float gate, float up) { return decltype(activation)::value(gate) * up; },
        static_cast<const T*>(a.gate), static_cast<const T*>(a.up));
  });
}

template <class T, int V>
GPU_FN void joined(const GluJoinedArgs& a) {
  const T* gates = static_cast<const T*>(a.x) + block_index() * 2 * a.n;
  T* y = static_cast<T*>(a.y) + block_index() * a.n;
  with_activation(a.activation, [&](auto activation) {
    map_row<V>(a.n, y, [](float gate, float up) { return decltype(activation)::value(gate) * up; }, gates, gates + a.n);
  });
}

template <class T, int V>
GPU_FN void backward(const GluBackwardArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n) return;
  const auto dy = load_floats<V>(static_cast<const T*>(a.dy) + at);
  auto gate = load_floats<V>(static_cast<const T*>(a.gate) + at);
  auto up = load_floats<V>(static_cast<const T*>(a.up) + at);
  with_activation(a.activation, [&](auto activation) {
    GPU_UNROLL
    for (int i = 0; i < V; ++i) {
      const Activated activated = decltype(activation)::with_derivative(gate.at[i]);
      gate.at[i] = dy.at[i] * up.at[i] * activated.derivative;
      up.at[i] = dy.at[i] * activated.value;
    }
  });
  store_floats(static_cast<T*>(a.dgate) + at, gate);
  store_floats(static_cast<T*>(a.dup) + at, up);
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(glu, GluArgs, forward)
GPU_KERNEL_BODY_FORWARD_PACKS(glu_joined, GluJoinedArgs, joined)
GPU_KERNEL_BODY_PACKS(glu_backward, GluBackwardArgs, backward)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/glu.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_forward(Context& context, const Tensor& y, const Tensor& gate, const Tensor& up, ops::Activation activation) {
  launch_elements(context, glu, {y, gate, up},
                  {y.data, gate.data, up.data, activation_type_of(activation), y.elements()});
}

void run_joined(Context& context, const Tensor& y, const Tensor& x, ops::Activation activation) {
  launch(context, of_rows(glu_joined, y.shape[1], {y, x}), {y.shape[0]},
         {y.data, x.data, activation_type_of(activation), y.shape[1]});
}

void run_backward(Context& context, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                  const Tensor& up, ops::Activation activation) {
  launch_elements(context, glu_backward, {dgate, dup, dy, gate, up},
                  {dgate.data, dup.data, dy.data, gate.data, up.data, activation_type_of(activation), dy.elements()});
}

}  // namespace

void register_glu(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Glu>(kind, "simt", run_forward);
  registry.add<ops::GluJoined>(kind, "simt", run_joined);
  registry.add<ops::GluBackward>(kind, "simt", run_backward);
}

}  // namespace ingot::gpu
#endif
