#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

struct SumPartsArgs {
  void* y;
  const void* parts;
  int64_t count;
  bool accumulate;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(sum_parts, SumPartsArgs, 256)
GPU_KERNEL(sum_parts_i64, SumPartsArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void sum_elements(const SumPartsArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n) return;
  T* y = static_cast<T*>(a.y) + at;
  const T* parts = static_cast<const T*>(a.parts) + at;
  Floats<V> sum = load_floats<V>(a.accumulate ? y : parts);
  for (int64_t p = a.accumulate ? 0 : 1; p < a.count; ++p) {
    const Floats<V> part = load_floats<V>(parts + p * a.n);
    for (int i = 0; i < V; ++i) sum.at[i] += part.at[i];
  }
  store_floats(y, sum);
}

GPU_FN void sum_integers(const SumPartsArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  const auto* parts = static_cast<const uint64_t*>(a.parts) + at;
  uint64_t* y = static_cast<uint64_t*>(a.y) + at;
  uint64_t sum = a.accumulate ? *y : 0;
  for (int64_t p = 0; p < a.count; ++p) sum += parts[p * a.n];
  *y = sum;
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(sum_parts, SumPartsArgs, sum_elements)
GPU_KERNEL_BODY(sum_parts_i64, SumPartsArgs) { sum_integers(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/sum_parts.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_sum_parts(Context& context, const Tensor& y, const Tensor& parts, bool accumulate) {
  const int64_t n = y.elements();
  const SumPartsArgs args{y.data, parts.data, parts.shape[0], accumulate, n};
  if (y.dtype == DType::i64) return launch(context, sum_parts_i64, {blocks_of(n, 256)}, args);
  launch_elements(context, sum_parts, {y, parts}, args);
}

}  // namespace

void register_sum_parts(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::SumParts>(kind, "simt", run_sum_parts);
}

}  // namespace ingot::gpu
#endif
