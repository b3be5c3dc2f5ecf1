// Matrix products of the CPU backend: one description, one way of cutting, and the engines that compute a slice.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::cpu {

// A second product, low [m, k] op(b) [k, n]: low is dense, b of the same form as the first product's. None where k is
// 0.
struct GemmTerm {
  const void* low = nullptr;
  const void* b = nullptr;
  int64_t k = 0, ldb = 0;
};

// c [m, n] (+)= op(a) [m, k] op(b) [k, n] + term; a and b of type `in`, c of type `out`. `ld*` are elements between the
// rows as they are stored.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::f32, out = DType::f32;
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]
  bool accumulate = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  GemmTerm term = {};  // only the engine of simd/pair_gemm.h, which alone has ops with one, looks at it
};

// Computes on the calling thread. The order of the sum over k depends on k alone.
using GemmSlice = void (*)(const Gemm& gemm, void* c, const void* a, const void* b);

// Where c is cut, never k: its rows, which keeps the pieces of c dense, but the columns of few rows; or whichever there
// are more of, so that the least is read by every thread.
enum class Cut { rows, longer };

// Cuts c among the pool's threads and calls `slice` for each piece.
void parallel_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b, GemmSlice slice,
                   Cut cut);

// A slice in double, rounded once.
void reference_gemm(const Gemm& gemm, void* c, const void* a, const void* b);

}  // namespace ingot::cpu
