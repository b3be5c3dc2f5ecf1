// Sums along rows and over blocks of rows, for the norms. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The sum over n elements, where term(sum, j, extent) adds element j: four interleaved sums, so that additions are
// independent.
template <class Term>
float sum_of(int64_t n, Term term) {
  Floats a{};
  Floats b{};
  Floats c{};
  Floats d{};
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    a = term(a, j, AllLanes{});
    b = term(b, j + lanes, AllLanes{});
    c = term(c, j + 2 * lanes, AllLanes{});
    d = term(d, j + 3 * lanes, AllLanes{});
  }
  for_each_vector(j, n, [&](int64_t i, auto extent) { a = term(a, i, extent); });
  return reduce_add((a + b) + (c + d));
}

// y [begin, end) (+)= the sum of `count` vectors that are n apart, in order.
[[maybe_unused]] void sum_blocks(float* y, const float* blocks, int64_t count, int64_t n, int64_t begin, int64_t end,
                                 bool accumulate) {
  for_each_vector(begin, end, [&](int64_t j, auto extent) {
    Floats total{};
    for (int64_t i = 0; i < count; ++i) total = total + load(blocks + i * n + j, extent);
    store(y + j, accumulate ? load(y + j, extent) + total : total, extent);
  });
}

}  // namespace
}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
