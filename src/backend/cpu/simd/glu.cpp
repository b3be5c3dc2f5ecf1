#include "backend/cpu/simd/glu.h"

#include "backend/cpu/simd/activation_functions.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class Function, class T>
void forward(T* y, const T* gate, const T* up, int64_t n) {
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const Pair z = load_pair(gate + j);
    const Pair u = load_pair(up + j);
    store_pair(y + j, {Function::value(z.first) * u.first, Function::value(z.second) * u.second});
  }
  for_each_vector(j, n, [&](int64_t i, auto extent) {
    store_computed(y + i, Function::value(load(gate + i, extent)) * load(up + i, extent), extent);
  });
}

template <class Function, class T>
void backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const Pair z = load_pair(gate + j);
    const Pair d = load_pair(dy + j);
    const Pair u = load_pair(up + j);
    const Activated first = Function::with_derivative(z.first);
    const Activated second = Function::with_derivative(z.second);
    store_pair(dgate + j, {d.first * u.first * first.derivative, d.second * u.second * second.derivative});
    store_pair(dup + j, {d.first * first.value, d.second * second.value});
  }
  for_each_vector(j, n, [&](int64_t i, auto extent) {
    const Activated activated = Function::with_derivative(load(gate + i, extent));
    const Floats dy_i = load(dy + i, extent);
    const Floats up_i = load(up + i, extent);
    store_computed(dgate + i, dy_i * up_i * activated.derivative, extent);
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
