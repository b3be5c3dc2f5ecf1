#include "backend/cpu/simd/layer_norm.h"

#include "backend/cpu/simd/row_sums.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The variance is computed from the differences to the mean, so no precision is lost when the mean is large.
template <class T>
void forward(const LayerNormRows<T>& task) {
  const int64_t n = task.n;
  const auto count = static_cast<float>(n);
  for (int64_t r = 0; r < task.rows; ++r) {
    const T* x = task.x + r * n;
    T* y = task.y + r * n;
    const float mean =
        sum_of(n, [&](Floats total, int64_t j, auto extent) { return total + load(x + j, extent); }) / count;
    const float squares = sum_of(n, [&](Floats total, int64_t j, auto extent) {
      const Floats difference = pad(load(x + j, extent) - mean, extent, 0.0F);
      return fma(difference, difference, total);
    });
    const float rstd = 1.0F / __builtin_sqrtf(squares / count + task.epsilon);
    if (task.mean != nullptr) task.mean[r] = mean;
    if (task.rstd != nullptr) task.rstd[r] = rstd;
    for_each_vector(0, n, [&](int64_t j, auto extent) {
      const Floats scaled = (load(x + j, extent) - mean) * rstd;
      const Floats bias = task.bias == nullptr ? Floats{} : load(task.bias + j, extent);
      store_computed(y + j, fma(scaled, load(task.weight + j, extent), bias), extent);
    });
  }
}

template <class T>
void backward(const LayerNormBackwardRows<T>& task) {
  const int64_t n = task.n;
  const auto count = static_cast<float>(n);
  for (int64_t r = 0; r < task.rows; ++r) {
    const T* x = task.x + r * n;
    const T* dy = task.dy + r * n;
    T* dx = task.dx + r * n;
    const float mean = task.mean[r];
    const float rstd = task.rstd[r];
    // With g = dy weight: sums of g and of g (x - mean), as two interleaved sums each.
    Floats sums_g[2]{};
    Floats sums_gx[2]{};
    const auto add = [&](int which, int64_t j, auto extent) {
      const Floats g = load(dy + j, extent) * load(task.weight + j, extent);
      sums_g[which] = sums_g[which] + g;
      sums_gx[which] = fma(g, load(x + j, extent) - mean, sums_gx[which]);
    };
    int64_t i0 = 0;
    for (; i0 + 2 * lanes <= n; i0 += 2 * lanes) {
      add(0, i0, AllLanes{});
      add(1, i0 + lanes, AllLanes{});
    }
    for_each_vector(i0, n, [&](int64_t j, auto extent) { add(0, j, extent); });
    const float mean_g = reduce_add(sums_g[0] + sums_g[1]) / count;
    const float projection = rstd * rstd * (reduce_add(sums_gx[0] + sums_gx[1]) / count);
    for_each_vector(0, n, [&](int64_t j, auto extent) {
      const Floats dy_j = load(dy + j, extent);
      const Floats difference = load(x + j, extent) - mean;
      if (task.dweight != nullptr) {
        const Floats before = r == 0 ? Floats{} : load(task.dweight + j, extent);
        store(task.dweight + j, fma(dy_j, difference * rstd, before), extent);
      }
      if (task.dbias != nullptr) {
        const Floats before = r == 0 ? Floats{} : load(task.dbias + j, extent);
        store(task.dbias + j, before + dy_j, extent);
      }
      const Floats value = (dy_j * load(task.weight + j, extent) - mean_g - difference * projection) * rstd;
      store_computed(dx + j, task.accumulate_dx ? load(dx + j, extent) + value : value, extent);
    });
  }
}

}  // namespace

const LayerNormKernels layer_norm_kernels = {
    {forward<float>, forward<Bf16>, forward<F16>}, backward<float>, backward<Bf16>, sum_blocks};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
