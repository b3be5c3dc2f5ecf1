// Matrix multiplication of the CPU backend: the description of a gemm, the split over threads, and the engines that
// compute one thread's part.
#pragma once

#include <span>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::cpu {

// A second gemm that is added to the first: low [m, k] op(b) [k, n]. low is dense, b is transposed like the first
// gemm's b. k is 0 if there is none.
struct GemmTerm {
  const void* low = nullptr;
  const void* b = nullptr;
  int64_t k = 0, ldb = 0;
};

// c [m, n] (+)= op(a) [m, k] op(b) [k, n] + term; a and b have dtype `in`, c has dtype `out`. `ld*` is the number of
// elements between consecutive rows as stored.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::f32, out = DType::f32;
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]
  bool accumulate = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  GemmTerm term =
      {};  // only supported by the engines of simd/pair_gemm.h and fma_gemm.h, which alone have ops that set it
};

// Computes on the calling thread, with the thread's part of the pool's workspace. The summation order over k depends on
// k alone.
using GemmSlice = void (*)(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace);

// How c is split (k never is). rows: by rows, which keeps the parts of c dense, but by columns if c has few rows.
// longer: along the longer dimension, so that the operand that every thread reads is the smaller one.
enum class Cut { rows, longer };

// Splits c among the pool's threads and calls `slice` for each part.
void parallel_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b, GemmSlice slice,
                   Cut cut);

// Computes in double, rounded once. Uses no workspace.
void reference_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace);

}  // namespace ingot::cpu
