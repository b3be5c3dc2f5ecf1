#include "backend/cpu/simd/rms_norm.h"

#include "backend/cpu/simd/row_sums.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class T>
void forward(const RmsNormRows<T>& task) {
  const int64_t n = task.n;
  for (int64_t r = 0; r < task.rows; ++r) {
    const T* x = task.x + r * n;
    T* y = task.y + r * n;
    const float squares = sum_of(n, [&](Floats total, int64_t j, auto extent) {
      const Floats value = load(x + j, extent);
      return fma(value, value, total);
    });
    const float rstd = 1.0F / __builtin_sqrtf(squares / static_cast<float>(n) + task.epsilon);
    if (task.rstd != nullptr) task.rstd[r] = rstd;
    for_each_vector(0, n, [&](int64_t j, auto extent) {
      store(y + j, load(x + j, extent) * rstd * (task.weight_offset + load(task.weight + j, extent)), extent);
    });
  }
}

template <class T>
void backward(const RmsNormBackwardRows<T>& task) {
  const int64_t n = task.n;
  for (int64_t r = 0; r < task.rows; ++r) {
    const T* x = task.x + r * n;
    const T* dy = task.dy + r * n;
    T* dx = task.dx + r * n;
    const float sum_gx = sum_of(n, [&](Floats total, int64_t j, auto extent) {
      return fma(load(dy + j, extent) * (task.weight_offset + load(task.weight + j, extent)), load(x + j, extent),
                 total);
    });
    const float rstd = task.rstd[r];
    const float projection = rstd * rstd * (sum_gx / static_cast<float>(n));
    for_each_vector(0, n, [&](int64_t j, auto extent) {
      const Floats dy_j = load(dy + j, extent);
      const Floats x_j = load(x + j, extent);
      if (task.dweight != nullptr) {
        const Floats before = r == 0 ? Floats{} : load(task.dweight + j, extent);
        store(task.dweight + j, fma(dy_j, x_j * rstd, before), extent);
      }
      const Floats value = (dy_j * (task.weight_offset + load(task.weight + j, extent)) - x_j * projection) * rstd;
      store(dx + j, task.accumulate_dx ? load(dx + j, extent) + value : value, extent);
    });
  }
}

}  // namespace

const RmsNormKernels rms_norm_kernels = {
    {forward<float>, forward<Bf16>, forward<F16>}, backward<float>, backward<Bf16>, sum_blocks};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
