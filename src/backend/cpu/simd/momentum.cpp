#include "backend/cpu/simd/momentum.h"

#include "backend/cpu/simd/either.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

void sgd(MomentumMemory memory, const float* gradient, int64_t n, SgdStep step) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats before = load_either(memory.master, i, extent);
    const Floats g = load(gradient + i, extent) * step.gradient_scale + before * step.weight_decay;
    const Floats m = load_either(memory.momentum, i, extent) * step.momentum + g;
    const Floats master = before - m * step.lr;
    store_either(memory.momentum, i, m, extent);
    store_either(memory.master, i, master, extent);
    if (memory.weight != nullptr) store(memory.weight + i, master, extent);
  });
}

void lion(MomentumMemory memory, const float* gradient, int64_t n, LionStep step) {
  const Floats zero{};
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats g = load(gradient + i, extent) * step.gradient_scale;
    const Floats m = load_either(memory.momentum, i, extent);
    const Floats direction = m * step.beta1 + g * step.one_minus_beta1;
    const Floats move = direction > zero ? splat(step.lr) : direction < zero ? splat(-step.lr) : zero;
    const Floats master = load_either(memory.master, i, extent) * step.decay - move;
    store_either(memory.momentum, i, m * step.beta2 + g * step.one_minus_beta2, extent);
    store_either(memory.master, i, master, extent);
    if (memory.weight != nullptr) store(memory.weight + i, master, extent);
  });
}

}  // namespace

const MomentumKernels momentum_kernels = {sgd, lion, &blockwise_kernels};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
