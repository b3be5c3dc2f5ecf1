#include "backend/cpu/simd/adamw.h"

#include "backend/cpu/simd/either.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

void update(AdamwMemory memory, const float* gradient, int64_t n, AdamwStep step) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats g = load(gradient + i, extent) * step.gradient_scale;
    const Floats m = load_either(memory.moment1, i, extent) * step.beta1 + g * step.one_minus_beta1;
    const Floats v = load_either(memory.moment2, i, extent) * step.beta2 + g * g * step.one_minus_beta2;
    const Floats decayed = load_either(memory.master, i, extent) * step.decay;
    const Floats master = decayed - m * step.step_size / (sqrt(v) / step.root + step.epsilon);
    store_either(memory.moment1, i, m, extent);
    store_either(memory.moment2, i, v, extent);
    store_either(memory.master, i, master, extent);
    if (memory.weight != nullptr) store(memory.weight + i, master, extent);
  });
}

double sum_squares(const float* x, int64_t n) {
  typedef double Doubles __attribute__((vector_size(8 * lanes)));
  Doubles sums{};
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Doubles wide = __builtin_convertvector(load(x + i, extent), Doubles);
    sums += wide * wide;
  });
  double total = 0;
  for (int i = 0; i < lanes; ++i) total += sums[i];
  return total;
}

}  // namespace

const AdamwKernels adamw_kernels = {update, sum_squares, &blockwise_kernels};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
