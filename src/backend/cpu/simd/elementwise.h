// Element-wise kernels on n elements. y may be an input.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// The random numbers of one row of dropout: block b is Philox with the counter (counter[0], counter[1], first_block +
// b, counter[2]).
struct DropoutRow {
  uint32_t counter[3];
  uint32_t first_block;
  uint32_t key[2];
  uint32_t drop_below;  // the smallest 24-bit random number that keeps an element
  float factor;         // multiplies the elements that are kept
};

template <class T>
using AddForm = void(T* y, const T* a, const T* b, int64_t n);
template <class X>
using ScaleToF32Form = void(float* y, const X* x, float factor, int64_t n);
template <class X>
using ScaleToBf16Form = void(Bf16* y, const X* x, float factor, int64_t n);
template <class X>
using ScaleToF16Form = void(F16* y, const X* x, float factor, int64_t n);
template <class T>
using AddBiasForm = void(T* y, const float* bias, int64_t n);
template <class T>
using BoundForm = void(T* y, const T* x, float limit, int64_t n);

struct ElementwiseKernels {
  ForTypes<AddForm> add;  // y = a + b
  // y = factor x, from any type.
  ForTypes<ScaleToF32Form> scale_to_f32;
  ForTypes<ScaleToBf16Form> scale_to_bf16;
  ForTypes<ScaleToF16Form> scale_to_f16;
  // Decodes the n elements of blocks of q8_0 or q4_0 (tensor/block_quant.h), n a multiple of 32; null at levels without
  // bf16 dot products.
  void (*q8_to_bf16)(Bf16* y, const void* blocks, int64_t n);
  void (*q4_to_bf16)(Bf16* y, const void* blocks, int64_t n);
  // y += x.
  void (*add_from_bf16)(float* y, const Bf16* x, int64_t n);
  ForTypes<AddBiasForm> add_bias;  // y += bias
  // sum (+)= sum over `rows` of dy, for columns 0 .. n of rows that are `stride` elements apart, in order of rows.
  void (*sum_rows_f32)(float* sum, const float* dy, int64_t rows, int64_t n, int64_t stride, bool accumulate);
  void (*sum_rows_bf16)(float* sum, const Bf16* dy, int64_t rows, int64_t n, int64_t stride, bool accumulate);
  // One row: element j is kept if the upper 24 bits of word j % 4 of block j / 4 are at least row.drop_below.
  void (*dropout_f32)(float* y, const float* x, int64_t n, DropoutRow row);
  void (*dropout_bf16)(Bf16* y, const Bf16* x, int64_t n, DropoutRow row);
  // As in ops/elementwise.h.
  ForTypes<BoundForm> clamp;
  void (*clamp_backward_f32)(float* dx, const float* dy, const float* x, float limit, int64_t n);
  void (*clamp_backward_bf16)(Bf16* dx, const Bf16* dy, const Bf16* x, float limit, int64_t n);
  ForTypes<BoundForm> softcap;
  void (*softcap_backward_f32)(float* dx, const float* dy, const float* y, float cap, int64_t n);
  void (*softcap_backward_bf16)(Bf16* dx, const Bf16* dy, const Bf16* y, float cap, int64_t n);
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const ElementwiseKernels elementwise_kernels;)
