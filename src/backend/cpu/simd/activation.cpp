#include "backend/cpu/simd/activation.h"

#include "backend/cpu/simd/activation_functions.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class Function, class T>
void forward(T* y, const T* x, int64_t n) {
  for_each_vector(0, n,
                  [&](int64_t i, auto extent) { store_computed(y + i, Function::value(load(x + i, extent)), extent); });
}

template <class Function, class T>
void backward(T* dx, const T* dy, const T* x, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    store_computed(dx + i, load(dy + i, extent) * Function::with_derivative(load(x + i, extent)).derivative, extent);
  });
}

}  // namespace

const ActivationKernels activation_kernels = {
    {{forward<Silu, float>, forward<Silu, Bf16>, forward<Silu, F16>},
     {forward<Gelu, float>, forward<Gelu, Bf16>, forward<Gelu, F16>},
     {forward<GeluTanh, float>, forward<GeluTanh, Bf16>, forward<GeluTanh, F16>}},
    {backward<Silu, float>, backward<Gelu, float>, backward<GeluTanh, float>},
    {backward<Silu, Bf16>, backward<Gelu, Bf16>, backward<GeluTanh, Bf16>},
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
