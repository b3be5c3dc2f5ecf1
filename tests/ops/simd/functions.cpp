// Compiled once per level.
#include "tests/ops/simd/functions.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class Function>
void for_vectors(float* y, const float* x, int64_t n, Function function) {
  for (int64_t i = 0; i < n; i += lanes) store(y + i, function(load(x + i, AllLanes{})), AllLanes{});
}

}  // namespace

const SimdFunctions simd_functions = {
    [](float* y, const float* x, int64_t n) { for_vectors(y, x, n, [](Floats v) { return exp(v); }); },
    [](float* y, const float* x, int64_t n) { for_vectors(y, x, n, [](Floats v) { return exp2(v); }); },
    [](float* y, const float* x, int64_t n) { for_vectors(y, x, n, [](Floats v) { return reciprocal(v); }); },
    [](float* y, const float* x, int64_t n) { for_vectors(y, x, n, [](Floats v) { return tanh(v); }); },
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
