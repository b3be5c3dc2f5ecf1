// Kernels of rms_norm on `rows` rows of n elements. Results do not depend on how the rows are split into calls.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
struct RmsNormRows {
  T* y;
  float* rstd;  // may be null
  const T* x;   // may be y
  const float* weight;
  float epsilon, weight_offset;
  int64_t rows, n;
};

template <class T>
struct RmsNormBackwardRows {
  T* dx;
  float* dweight;  // [n], assigned the sum over these rows in order; null: not computed
  const T* dy;
  const T* x;
  const float* weight;
  const float* rstd;
  float weight_offset;
  int64_t rows, n;
  bool accumulate_dx;
};

template <class T>
using RmsNormForm = void(const RmsNormRows<T>& task);

struct RmsNormKernels {
  ForTypes<RmsNormForm> forward;
  void (*backward_f32)(const RmsNormBackwardRows<float>& task);
  void (*backward_bf16)(const RmsNormBackwardRows<Bf16>& task);
  // y [begin, end) (+)= the sum of `count` vectors that are n apart, in order.
  void (*sum_blocks)(float* y, const float* blocks, int64_t count, int64_t n, int64_t begin, int64_t end,
                     bool accumulate);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const RmsNormKernels rms_norm_kernels;)
