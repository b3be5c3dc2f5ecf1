#include "backend/cpu/simd/glu.h"

#include "backend/cpu/simd/curves.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class Curve, class T>
void forward(T* y, const T* gate, const T* up, int64_t n) {
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const Pair z = load_pair(gate + j);
    const Pair u = load_pair(up + j);
    store_pair(y + j, {Curve::value(z.first) * u.first, Curve::value(z.second) * u.second});
  }
  sweep(j, n, [&](int64_t i, auto extent) {
    store_computed(y + i, Curve::value(load(gate + i, extent)) * load(up + i, extent), extent);
  });
}

template <class Curve, class T>
void backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const Pair z = load_pair(gate + j);
    const Pair d = load_pair(dy + j);
    const Pair u = load_pair(up + j);
    const Activated first = Curve::both(z.first);
    const Activated second = Curve::both(z.second);
    store_pair(dgate + j, {d.first * u.first * first.slope, d.second * u.second * second.slope});
    store_pair(dup + j, {d.first * first.value, d.second * second.value});
  }
  sweep(j, n, [&](int64_t i, auto extent) {
    const Activated activated = Curve::both(load(gate + i, extent));
    const Floats dy_i = load(dy + i, extent);
    const Floats up_i = load(up + i, extent);
    store_computed(dgate + i, dy_i * up_i * activated.slope, extent);
    store_computed(dup + i, dy_i * activated.value, extent);
  });
}

}  // namespace

const GluKernels glu_kernels = {
    {{forward<Silu, float>, forward<Silu, Bf16>, forward<Silu, F16>},
     {forward<Gelu, float>, forward<Gelu, Bf16>, forward<Gelu, F16>},
     {forward<GeluTanh, float>, forward<GeluTanh, Bf16>, forward<GeluTanh, F16>}},
    {backward<Silu, float>, backward<Gelu, float>, backward<GeluTanh, float>},
    {backward<Silu, Bf16>, backward<Gelu, Bf16>, backward<GeluTanh, Bf16>},
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
