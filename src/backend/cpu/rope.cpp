#include "backend/cpu/simd/rope.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "ops/rope_kv_store.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const RopeKernels& K>
void run(Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
         ops::RopeAttributes attributes) {
  const int64_t n = x.shape[1];
  const int64_t pairs = frequencies.shape[0];
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
      of_type<T>(K.rotate)(elements<T>(y) + lo * n, elements<T>(x) + lo * n, positions.as<int32_t>() + lo,
                           frequencies.as<float>(), hi - lo, attributes.heads, n / attributes.heads, pairs,
                           attributes.inverse);
    });
  });
}

void reference(Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
               ops::RopeAttributes attributes) {
  const int64_t n = x.shape[1];
  const int64_t pairs = frequencies.shape[0];
  const int64_t head_dim = n / attributes.heads;
  context.threads->parallel_for(0, x.shape[0], row_grain(n), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      for (int64_t j = 0; j < n; ++j) {
        if (j % head_dim >= 2 * pairs) set_element(y, t * n + j, element(x, t * n + j));
      }
      for (int64_t i = 0; i < pairs; ++i) {
        // The angle is rounded to fp32, as ops/rope.h specifies; its sine is not.
        const float angle = static_cast<float>(positions.as<int32_t>()[t]) * frequencies.as<float>()[i];
        const double s = std::sin(static_cast<double>(angle)) * (attributes.inverse ? -1.0 : 1.0);
        const double c = std::cos(static_cast<double>(angle));
        for (int64_t h = 0; h < attributes.heads; ++h) {
          const int64_t at = t * n + h * head_dim + i;
          const double low = element(x, at);
          const double high = element(x, at + pairs);
          set_element(y, at, low * c - high * s);
          set_element(y, at + pairs, high * c + low * s);
        }
      }
    }
  });
}

}  // namespace

void register_rope_kv_store(ops::Registry& registry, Levels) {
  ops::add_rope_kv_store_apart(registry, DeviceKind::cpu);
}

void register_rope(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Rope, run, rope_kernels);
  registry.add<ops::Rope>(DeviceKind::cpu, "reference", reference);
}

}  // namespace ingot::cpu
