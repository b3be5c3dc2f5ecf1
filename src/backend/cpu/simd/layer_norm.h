// Kernels of layer_norm on `rows` rows of n elements. Results do not depend on how the rows are split into calls.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

template <class T>
struct LayerNormRows {
  T* y;
  float* mean;  // may be null
  float* rstd;  // may be null
  const T* x;   // may be y
  const float* weight;
  const float* bias;  // null: none
  float epsilon;
  int64_t rows, n;
};

template <class T>
struct LayerNormBackwardRows {
  T* dx;
  float* dweight;  // [n], assigned the sum over these rows in order; null: not computed
  float* dbias;    // as dweight
  const T* dy;
  const T* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  int64_t rows, n;
  bool accumulate_dx;
};

template <class T>
using LayerNormForm = void(const LayerNormRows<T>& task);

struct LayerNormKernels {
  ForTypes<LayerNormForm> forward;
  void (*backward_f32)(const LayerNormBackwardRows<float>& task);
  void (*backward_bf16)(const LayerNormBackwardRows<Bf16>& task);
  // y [begin, end) (+)= the sum of `count` vectors that are n apart, in order.
  void (*sum_blocks)(float* y, const float* blocks, int64_t count, int64_t n, int64_t begin, int64_t end,
                     bool accumulate);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const LayerNormKernels layer_norm_kernels;)
