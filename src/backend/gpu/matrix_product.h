// A product of matrices in a device's memory.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace ingot::gpu {

// c [m, n] (+)= op(a) [m, k] op(b) [k, n], all row-major; the leading dimensions are elements between rows as stored.
// Sums in fp32, in an order that depends on k only.
struct MatrixProduct {
  void* c;
  const void* a;
  const void* b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]
  bool accumulate = false;   // add to c instead of assigning
  DType in = DType::f32;     // of a and b: f32, bf16 or f16; u8: codes of e4m3
  DType out = DType::f32;    // of c: f32, bf16, or f16 where a is
  // Codes only. Element (i, j) of the product counts a_scales[i] b_scales[j] times. `fnuz`: the device's instructions
  // read e4m3fnuz, where a code means half of what it does in e4m3.
  const float* a_scales = nullptr;  // [m]
  const float* b_scales = nullptr;  // [n]
  bool fnuz = false;
};

}  // namespace ingot::gpu
