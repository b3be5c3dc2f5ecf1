#include "ops/fixed_sum.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/fixed_sum.h"

namespace ingot::cpu {
namespace {

using ops::Context;

constexpr uint32_t infinity = 0x7f800000U;

template <const FixedSumKernels& K>
void add_fixed(Context& context, const Tensor& sum, const Tensor& largest, const Tensor& x, const Tensor& range,
               int bits, bool accumulate) {
  const double factor = std::ldexp(1.0, bits - *range.as<int32_t>());
  const double limit = std::ldexp(1.0, bits);
  std::vector<uint32_t> parts(static_cast<size_t>((x.elements() + element_grain - 1) / element_grain));
  context.threads->parallel_for(0, x.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    parts[static_cast<size_t>(lo / element_grain)] =
        K.add(sum.as<int64_t>() + lo, x.as<float>() + lo, hi - lo, factor, limit, accumulate);
  });
  uint32_t most = accumulate ? std::bit_cast<uint32_t>(*largest.as<float>()) : 0;
  for (const uint32_t part : parts) most = std::max(most, part);
  *largest.as<float>() = std::bit_cast<float>(std::min(most, infinity));
}

template <const FixedSumKernels& K>
void fixed_to_float(Context& context, const Tensor& y, const Tensor& sum, const Tensor& largest, const Tensor& range,
                    int bits) {
  const bool right = ops::in_range(*range.as<int32_t>(), *largest.as<float>());
  const double factor = right ? std::ldexp(1.0, *range.as<int32_t>() - bits) : NAN;
  context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    K.to_float(y.as<float>() + lo, sum.as<int64_t>() + lo, hi - lo, factor);
  });
}

void next_ranges(Context&, const Tensor& range, const Tensor& largest) {
  for (int64_t i = 0; i < range.elements(); ++i) {
    range.as<int32_t>()[i] = ops::next_range(range.as<int32_t>()[i], largest.as<float>()[i]);
  }
}

}  // namespace

void register_fixed_sum(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::AddFixed, add_fixed, fixed_sum_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::FixedToFloat, fixed_to_float, fixed_sum_kernels);
  registry.add<ops::NextRanges>(DeviceKind::cpu, "reference", next_ranges);
}

}  // namespace ingot::cpu
