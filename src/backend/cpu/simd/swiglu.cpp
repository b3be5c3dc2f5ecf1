#include "backend/cpu/simd/swiglu.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

INGOT_INLINE Floats sigmoid(Floats z) { return 1.0F / (1.0F + exp(-z)); }

template <class T>
void forward(T* y, const T* gate, const T* up, int64_t n) {
  sweep(0, n, [&](int64_t j, auto extent) {
    const Floats z = load(gate + j, extent);
    store(y + j, z * sigmoid(z) * load(up + j, extent), extent);
  });
}

template <class T>
void backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  sweep(0, n, [&](int64_t j, auto extent) {
    const Floats z = load(gate + j, extent);
    const Floats dy_j = load(dy + j, extent);
    const Floats up_j = load(up + j, extent);
    const Floats s = sigmoid(z);
    const Floats slope = s * fma(z, 1.0F - s, splat(1.0F));
    store(dgate + j, dy_j * up_j * slope, extent);
    store(dup + j, dy_j * (z * s), extent);
  });
}

}  // namespace

const SwigluKernels swiglu_kernels = {forward<float>, forward<Bf16>, backward<float>, backward<Bf16>};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
