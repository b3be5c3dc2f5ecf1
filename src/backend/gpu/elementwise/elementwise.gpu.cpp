#include "backend/gpu/elementwise/functions.h"
#include "backend/gpu/rows.h"

namespace ingot::gpu {

// y = f(a, b) or f(a) of n elements; `number` is the limit or cap of f.
struct ElementwiseArgs {
  void* y;
  const void* a;
  const void* b;
  float number;
  int64_t n;
};

enum class RealType : int32_t { f32, bf16, f16 };

struct ScaleArgs {
  void* y;
  const void* x;
  RealType from;
  float factor;
  int64_t n;
};

struct AddBiasArgs {
  void* y;
  const float* bias;
  int64_t n;  // columns; one block per row
};

struct AddBiasBackwardArgs {
  float* dbias;
  const void* dy;
  int64_t rows;
  int64_t n;
  bool accumulate;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(add, ElementwiseArgs, 256)
GPU_KERNEL_FORWARD_PACKS(clamp, ElementwiseArgs, 256)
GPU_KERNEL_PACKS(clamp_backward, ElementwiseArgs, 256)
GPU_KERNEL_FORWARD_PACKS(softcap, ElementwiseArgs, 256)
GPU_KERNEL_PACKS(softcap_backward, ElementwiseArgs, 256)
GPU_KERNEL_FORWARD_PACKS(scale, ScaleArgs, 256)
GPU_KERNEL_FORWARD_PACKS(add_bias, AddBiasArgs, 256)
GPU_KERNEL_TYPES(add_bias_backward, AddBiasBackwardArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <int V, class T, class Function>
GPU_FN void map_one(const ElementwiseArgs& args, Function function) {
  map_elements<V>(args.n, static_cast<T*>(args.y), function, static_cast<const T*>(args.a));
}
template <int V, class T, class Function>
GPU_FN void map_two(const ElementwiseArgs& args, Function function) {
  map_elements<V>(args.n, static_cast<T*>(args.y), function, static_cast<const T*>(args.a),
                  static_cast<const T*>(args.b));
}

template <class T, int V>
GPU_FN void add_elements(const ElementwiseArgs& args) {
  map_two<V, T>(args, [](float x, float z) { return x + z; });
}

template <class T, int V>
GPU_FN void clamp_elements(const ElementwiseArgs& args) {
  map_one<V, T>(args, [limit = args.number](float x) { return x > limit ? limit : x < -limit ? -limit : x; });
}

template <class T, int V>
GPU_FN void clamp_gradients(const ElementwiseArgs& args) {
  map_two<V, T>(args, [limit = args.number](float dy, float x) { return (x < 0 ? -x : x) <= limit ? dy : 0.0F; });
}

template <class T, int V>
GPU_FN void softcap_elements(const ElementwiseArgs& args) {
  map_one<V, T>(args, [cap = args.number, inverse = 1.0F / args.number](float x) {
    return hyperbolic_tangent(x * inverse) * cap;
  });
}

template <class T, int V>
GPU_FN void softcap_gradients(const ElementwiseArgs& args) {
  map_two<V, T>(args, [inverse = 1.0F / args.number](float dy, float y) {
    const float tanh_x = y * inverse;
    return dy * fma(-tanh_x, tanh_x, 1.0F);
  });
}

template <class T, int V>
GPU_FN void convert(const ScaleArgs& a) {
  const auto from = [&](const auto* x) {
    map_elements<V>(a.n, static_cast<T*>(a.y), [factor = a.factor](float value) { return value * factor; }, x);
  };
  switch (a.from) {
    case RealType::f32: return from(static_cast<const float*>(a.x));
    case RealType::bf16: return from(static_cast<const Bf16*>(a.x));
    case RealType::f16: return from(static_cast<const F16*>(a.x));
  }
}

template <class T, int V>
GPU_FN void add_to_rows(const AddBiasArgs& a) {
  T* y = static_cast<T*>(a.y) + block_index() * a.n;
  map_row<V>(a.n, y, [](float value, float bias) { return value + bias; }, y, a.bias);
}

// A block sums 32 columns: thread group g sums rows g, g + 8, ..., then the groups are added in order.
struct SharedStorage {
  float sums[8][32];
};
template <class T>
GPU_FN void sum_of_rows(const AddBiasBackwardArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int column = thread_index() % 32;
  const int group = thread_index() / 32;
  const int64_t j = static_cast<int64_t>(block_index()) * 32 + column;
  const T* dy = static_cast<const T*>(a.dy);
  float sum = 0;
  if (j < a.n) {
    for (int64_t t = group; t < a.rows; t += 8) sum += to_float(dy[t * a.n + j]);
  }
  shared.sums[group][column] = sum;
  block_barrier();
  if (group > 0 || j >= a.n) return;
  float total = a.accumulate ? a.dbias[j] : 0.0F;
  for (int g = 0; g < 8; ++g) total += shared.sums[g][column];
  a.dbias[j] = total;
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(add, ElementwiseArgs, add_elements)
GPU_KERNEL_BODY_FORWARD_PACKS(clamp, ElementwiseArgs, clamp_elements)
GPU_KERNEL_BODY_PACKS(clamp_backward, ElementwiseArgs, clamp_gradients)
GPU_KERNEL_BODY_FORWARD_PACKS(softcap, ElementwiseArgs, softcap_elements)
GPU_KERNEL_BODY_PACKS(softcap_backward, ElementwiseArgs, softcap_gradients)
GPU_KERNEL_BODY_FORWARD_PACKS(scale, ScaleArgs, convert)
GPU_KERNEL_BODY_FORWARD_PACKS(add_bias, AddBiasArgs, add_to_rows)
GPU_KERNEL_BODY_TYPES(add_bias_backward, AddBiasBackwardArgs, sum_of_rows)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/elementwise.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_add(Context& context, const Tensor& y, const Tensor& a, const Tensor& b) {
  launch_elements(context, add, {y, a, b}, {y.data, a.data, b.data, 0.0F, y.elements()});
}

void run_scale(Context& context, const Tensor& y, const Tensor& x, float factor) {
  const RealType from = x.dtype == DType::f32 ? RealType::f32 : x.dtype == DType::bf16 ? RealType::bf16 : RealType::f16;
  launch_elements(context, scale, {y, x}, {y.data, x.data, from, factor, y.elements()});
}

void run_clamp(Context& context, const Tensor& y, const Tensor& x, float limit) {
  launch_elements(context, clamp, {y, x}, {y.data, x.data, nullptr, limit, y.elements()});
}

void run_clamp_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, float limit) {
  launch_elements(context, clamp_backward, {dx, dy, x}, {dx.data, dy.data, x.data, limit, dx.elements()});
}

void run_softcap(Context& context, const Tensor& y, const Tensor& x, float cap) {
  launch_elements(context, softcap, {y, x}, {y.data, x.data, nullptr, cap, y.elements()});
}

void run_softcap_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  launch_elements(context, softcap_backward, {dx, dy, y}, {dx.data, dy.data, y.data, cap, dx.elements()});
}

void run_add_bias(Context& context, const Tensor& y, const Tensor& bias) {
  const int64_t n = y.shape[1];
  launch(context, of_rows(add_bias, n, {y, bias}), {y.shape[0]}, {y.data, bias.as<float>(), n});
}

void run_add_bias_backward(Context& context, const Tensor& dbias, const Tensor& dy, bool accumulate) {
  const int64_t n = dy.shape[1];
  launch(context, of_type(add_bias_backward, dy.dtype), {blocks_of(n, 32)},
         {dbias.as<float>(), dy.data, dy.shape[0], n, accumulate});
}

}  // namespace

void register_elementwise(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Add>(kind, "simt", run_add);
  registry.add<ops::Scale>(kind, "simt", run_scale);
  registry.add<ops::Clamp>(kind, "simt", run_clamp);
  registry.add<ops::ClampBackward>(kind, "simt", run_clamp_backward);
  registry.add<ops::Softcap>(kind, "simt", run_softcap);
  registry.add<ops::SoftcapBackward>(kind, "simt", run_softcap_backward);
  registry.add<ops::AddBias>(kind, "simt", run_add_bias);
  registry.add<ops::AddBiasBackward>(kind, "simt", run_add_bias_backward);
  register_dropout(registry, kind);
}

}  // namespace ingot::gpu
#endif
