#include "backend/cpu/simd/glu.h"

#include "backend/cpu/simd/curves.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class Curve, class T>
void forward(T* y, const T* gate, const T* up, int64_t n) {
  sweep(0, n, [&](int64_t j, auto extent) {
    store_computed(y + j, Curve::value(load(gate + j, extent)) * load(up + j, extent), extent);
  });
}

template <class Curve, class T>
void backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  sweep(0, n, [&](int64_t j, auto extent) {
    const Activated activated = Curve::both(load(gate + j, extent));
    const Floats dy_j = load(dy + j, extent);
    const Floats up_j = load(up + j, extent);
    store_computed(dgate + j, dy_j * up_j * activated.slope, extent);
    store_computed(dup + j, dy_j * activated.value, extent);
  });
}

}  // namespace

const GluKernels glu_kernels = {
    {forward<Silu, float>, forward<Gelu, float>, forward<GeluTanh, float>},
    {forward<Silu, Bf16>, forward<Gelu, Bf16>, forward<GeluTanh, Bf16>},
    {backward<Silu, float>, backward<Gelu, float>, backward<GeluTanh, float>},
    {backward<Silu, Bf16>, backward<Gelu, Bf16>, backward<GeluTanh, Bf16>},
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
