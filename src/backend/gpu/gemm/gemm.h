// A gemm on matrices in a device's memory.
#pragma once

#include <cstdint>

#include "ops/invariance.h"
#include "tensor/dtype.h"

namespace ingot::gpu {

// c [m, n] = op(a) [m, k] op(b) [k, n], plus `addend` if not null, all row-major. lda, ldb and ldc are the distances
// between stored rows, in elements. Sums are fp32, in an order that depends on k only, as far as `invariance` does not
// ask for less, and are rounded once.
struct Gemm {
  void* c;
  const void* a;
  const void* b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]
  // Of the type and the stride of c; c itself to add to it. Other matrices do not overlap with c.
  const void* addend = nullptr;
  const void* bias = nullptr;  // [n] of the type of c, added to every row; read by vendors' libraries; not with fp8
  DType in = DType::f32;       // of a and b: f32, bf16 or f16; u8: e4m3 codes
  DType out = DType::f32;      // of c: f32, bf16, or f16 if a is f16
  // For fp8 (u8) only. Element (i, j) of the product is multiplied by a_scales[i] b_scales[j]. `fnuz`: the device's
  // instructions read the codes as e4m3fnuz, which halves their value compared with e4m3.
  const float* a_scales = nullptr;  // [m]
  const float* b_scales = nullptr;  // [n]
  bool fnuz = false;
  ops::Invariance invariance = ops::Invariance::slices;  // read by vendors' libraries
};

}  // namespace ingot::gpu
