#include "backend/cpu/simd/muon.h"

#include "backend/cpu/simd/either.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

void momentum(float* update, EitherMemory memory, const float* gradient, int64_t n, MuonMomentumStep step) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats g = load(gradient + i, extent) * step.gradient_scale * step.one_minus_momentum;
    const Floats m = load_either(memory, i, extent) * step.momentum + g;
    store_either(memory, i, m, extent);
    store(update + i, m * step.momentum + g, extent);
  });
}

void divide(EitherMemory y, const float* x, float divisor, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) { store_either(y, i, load(x + i, extent) / divisor, extent); });
}

void combine(EitherMemory y, EitherMemory x, const float* p, float a, float b, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    store_either(y, i, load_either(x, i, extent) * a + load(p + i, extent) * b, extent);
  });
}

void apply(EitherMemory master, Bf16* weight, const float* update, float decay, float step_size, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats after = load_either(master, i, extent) * decay - load(update + i, extent) * step_size;
    store_either(master, i, after, extent);
    if (weight != nullptr) store(weight + i, after, extent);
  });
}

}  // namespace

const MuonKernels muon_kernels = {momentum, divide, combine, apply, &blockwise_kernels};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
