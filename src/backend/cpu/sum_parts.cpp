#include "ops/sum_parts.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "base/error.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// Elements whose sums are kept in the cache while the parts are added.
constexpr int64_t block = 1024;

// y [n] (+)= the sum of `count` parts, which begin `stride` elements apart, in fp32.
template <class T, class Widen, class Narrow>
void sum_block(T* y, const T* parts, int64_t n, int64_t count, int64_t stride, bool accumulate, Widen widen,
               Narrow narrow) {
  std::array<float, block> sum;
  const T* first = accumulate ? y : parts;
  for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = widen(first[i]);
  for (int64_t p = accumulate ? 0 : 1; p < count; ++p) {
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += widen(parts[p * stride + i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = narrow(sum[static_cast<size_t>(i)]);
}

template <class T, class Widen, class Narrow>
void sum_all(Context& context, const Tensor& y, const Tensor& parts, bool accumulate, Widen widen, Narrow narrow) {
  const int64_t n = y.elements();
  context.threads->parallel_for(0, n, element_grain, [&](int64_t lo, int64_t hi) {
    for (int64_t begin = lo; begin < hi; begin += block) {
      sum_block(y.as<T>() + begin, parts.as<T>() + begin, std::min(block, hi - begin), parts.shape[0], n, accumulate,
                widen, narrow);
    }
  });
}

// Integers, whose overflow is an error: sums of gradients in fixed point are made not to overflow (ops/fixed_sum.h).
void sum_integers(Context& context, const Tensor& y, const Tensor& parts, bool accumulate) {
  const int64_t n = y.elements();
  std::atomic<bool> overflows = false;
  context.threads->parallel_for(0, n, element_grain, [&](int64_t lo, int64_t hi) {
    auto* sum = y.as<int64_t>();
    bool fits = true;
    for (int64_t p = 0; p < parts.shape[0]; ++p) {
      const int64_t* part = parts.as<int64_t>() + p * n;
      for (int64_t i = lo; i < hi; ++i) {
        if (p == 0 && !accumulate) {
          sum[i] = part[i];
        } else {
          fits &= !__builtin_add_overflow(sum[i], part[i], &sum[i]);
        }
      }
    }
    if (!fits) overflows = true;
  });
  if (overflows) throw_error(ErrorKind::internal, "sum_parts: a sum of {} integers overflows int64", n);
}

void run_sum_parts(Context& context, const Tensor& y, const Tensor& parts, bool accumulate) {
  switch (y.dtype) {
    case DType::bf16: return sum_all<uint16_t>(context, y, parts, accumulate, bf16_to_float, float_to_bf16);
    case DType::f16: return sum_all<uint16_t>(context, y, parts, accumulate, f16_to_float, float_to_f16);
    case DType::f32: return sum_all<float>(context, y, parts, accumulate, std::identity(), std::identity());
    default: return sum_integers(context, y, parts, accumulate);
  }
}

}  // namespace

void register_sum_parts(ops::Registry& registry, Levels) {
  registry.add<ops::SumParts>(DeviceKind::cpu, "reference", run_sum_parts);
}

}  // namespace ingot::cpu
