// Element-wise kernels on n elements. y may be an input.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// The random numbers of one row of dropout: block b is Philox of counter (counter[0], counter[1], b, counter[2]).
struct DropoutRow {
  uint32_t counter[3];
  uint32_t key[2];
  uint32_t keep_from;  // the smallest 24-bit random number that keeps an element
  float factor;        // of the kept
};

struct ElementwiseKernels {
  // y = a + b.
  void (*add_f32)(float* y, const float* a, const float* b, int64_t n);
  void (*add_bf16)(Bf16* y, const Bf16* a, const Bf16* b, int64_t n);
  // y = factor x.
  void (*scale_f32_f32)(float* y, const float* x, float factor, int64_t n);
  void (*scale_f32_bf16)(float* y, const Bf16* x, float factor, int64_t n);
  void (*scale_f32_f16)(float* y, const F16* x, float factor, int64_t n);
  void (*scale_bf16_f32)(Bf16* y, const float* x, float factor, int64_t n);
  void (*scale_bf16_bf16)(Bf16* y, const Bf16* x, float factor, int64_t n);
  void (*scale_bf16_f16)(Bf16* y, const F16* x, float factor, int64_t n);
  // y += x.
  void (*add_from_bf16)(float* y, const Bf16* x, int64_t n);
  // y += bias.
  void (*add_bias_f32)(float* y, const float* bias, int64_t n);
  void (*add_bias_bf16)(Bf16* y, const float* bias, int64_t n);
  // sum (+)= sum over `rows` of dy, columns 0 .. n of rows of `stride` elements, in order of rows.
  void (*sum_rows_f32)(float* sum, const float* dy, int64_t rows, int64_t n, int64_t stride, bool accumulate);
  void (*sum_rows_bf16)(float* sum, const Bf16* dy, int64_t rows, int64_t n, int64_t stride, bool accumulate);
  // One row: element j is kept when the upper 24 bits of word j % 4 of block j / 4 reach row.keep_from.
  void (*dropout_f32)(float* y, const float* x, int64_t n, DropoutRow row);
  void (*dropout_bf16)(Bf16* y, const Bf16* x, int64_t n, DropoutRow row);
  // As ops/elementwise.h says.
  void (*clamp_f32)(float* y, const float* x, float limit, int64_t n);
  void (*clamp_bf16)(Bf16* y, const Bf16* x, float limit, int64_t n);
  void (*clamp_backward_f32)(float* dx, const float* dy, const float* x, float limit, int64_t n);
  void (*clamp_backward_bf16)(Bf16* dx, const Bf16* dy, const Bf16* x, float limit, int64_t n);
  void (*softcap_f32)(float* y, const float* x, float cap, int64_t n);
  void (*softcap_bf16)(Bf16* y, const Bf16* x, float cap, int64_t n);
  void (*softcap_backward_f32)(float* dx, const float* dy, const float* y, float cap, int64_t n);
  void (*softcap_backward_bf16)(Bf16* dx, const Bf16* dy, const Bf16* y, float cap, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const ElementwiseKernels elementwise_kernels;)
