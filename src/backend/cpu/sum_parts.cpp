#include "ops/sum_parts.h"

#include <algorithm>
#include <array>
#include <functional>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// Elements whose sums are kept in the cache while the parts are added.
constexpr int64_t block = 1024;

// y [n] (+)= the sum of `count` parts, which begin `stride` elements apart, in `Sum`s.
template <class Sum, class T, class Widen, class Narrow>
void sum_block(T* y, const T* parts, int64_t n, int64_t count, int64_t stride, bool accumulate, Widen widen,
               Narrow narrow) {
  std::array<Sum, block> sum;
  const T* first = accumulate ? y : parts;
  for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = widen(first[i]);
  for (int64_t p = accumulate ? 0 : 1; p < count; ++p) {
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += widen(parts[p * stride + i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = narrow(sum[static_cast<size_t>(i)]);
}

template <class Sum, class T, class Widen, class Narrow>
void sum_all(Context& context, const Tensor& y, const Tensor& parts, bool accumulate, Widen widen, Narrow narrow) {
  const int64_t n = y.elements();
  context.threads->parallel_for(0, n, element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t begin = lo; begin < hi; begin += block) {
      sum_block<Sum>(y.as<T>() + begin, parts.as<T>() + begin, std::min(block, hi - begin), parts.shape[0], n,
                     accumulate, widen, narrow);
    }
  });
}

void run_sum_parts(Context& context, const Tensor& y, const Tensor& parts, bool accumulate) {
  switch (y.dtype) {
    case DType::bf16: return sum_all<float, uint16_t>(context, y, parts, accumulate, bf16_to_float, float_to_bf16);
    case DType::f16: return sum_all<float, uint16_t>(context, y, parts, accumulate, f16_to_float, float_to_f16);
    case DType::f32: return sum_all<float, float>(context, y, parts, accumulate, std::identity(), std::identity());
    default:
      return sum_all<uint64_t, int64_t>(
          context, y, parts, accumulate, [](int64_t x) { return static_cast<uint64_t>(x); },
          [](uint64_t x) { return static_cast<int64_t>(x); });
  }
}

}  // namespace

void register_sum_parts(ops::Registry& registry, Levels) {
  registry.add<ops::SumParts>(DeviceKind::cpu, "reference", run_sum_parts);
}

}  // namespace ingot::cpu
