#include "backend/cpu/simd/rms_norm.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// Sum of term(j, extent) over n elements: four interleaved sums, so that additions need not wait for each other.
template <class Term>
float sum_of(int64_t n, Term term) {
  Floats a{};
  Floats b{};
  Floats c{};
  Floats d{};
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    a = term(a, j, Whole{});
    b = term(b, j + lanes, Whole{});
    c = term(c, j + 2 * lanes, Whole{});
    d = term(d, j + 3 * lanes, Whole{});
  }
  sweep(j, n, [&](int64_t i, auto extent) { a = term(a, i, extent); });
  return sum((a + b) + (c + d));
}

template <class T>
void forward(T* y, float* rstd, const T* x, const float* weight, float epsilon, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * n;
    T* to = y + r * n;
    const float squares = sum_of(n, [&](Floats total, int64_t j, auto extent) {
      const Floats value = load(from + j, extent);
      return fma(value, value, total);
    });
    const float inverse = 1.0F / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon);
    if (rstd != nullptr) rstd[r] = inverse;
    sweep(0, n, [&](int64_t j, auto extent) {
      store(to + j, load(from + j, extent) * inverse * load(weight + j, extent), extent);
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
    const float products = sum_of(n, [&](Floats total, int64_t j, auto extent) {
      return fma(load(dy + j, extent) * load(task.weight + j, extent), load(x + j, extent), total);
    });
    const float rstd = task.rstd[r];
    const float pull = rstd * rstd * (products / static_cast<float>(n));
    sweep(0, n, [&](int64_t j, auto extent) {
      const Floats dy_j = load(dy + j, extent);
      const Floats x_j = load(x + j, extent);
      if (task.dweight != nullptr) {
        const Floats before = r == 0 ? Floats{} : load(task.dweight + j, extent);
        store(task.dweight + j, fma(dy_j, x_j * rstd, before), extent);
      }
      const Floats value = (dy_j * load(task.weight + j, extent) - x_j * pull) * rstd;
      store(dx + j, task.accumulate_dx ? load(dx + j, extent) + value : value, extent);
    });
  }
}

void sum_blocks(float* y, const float* blocks, int64_t count, int64_t n, int64_t begin, int64_t end, bool accumulate) {
  sweep(begin, end, [&](int64_t j, auto extent) {
    Floats total{};
    for (int64_t i = 0; i < count; ++i) total = total + load(blocks + i * n + j, extent);
    store(y + j, accumulate ? load(y + j, extent) + total : total, extent);
  });
}

}  // namespace

const RmsNormKernels rms_norm_kernels = {forward<float>, forward<Bf16>, backward<float>, backward<Bf16>, sum_blocks};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
