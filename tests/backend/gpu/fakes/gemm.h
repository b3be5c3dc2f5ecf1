// Gemms of column-major matrices, as the vendors document them, by value: what the stand-ins for cuBLASLt and hipBLASLt
// compute. Written from the documentation of their matmul functions, not from our binding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake {

// cudaDataType and hipDataType, which have the same values.
constexpr int f32 = 0;
constexpr int f16 = 2;
constexpr int bf16 = 14;
constexpr int e4m3 = 28;
constexpr int e4m3_fnuz = 1000;  // AMD's alone
constexpr bool is_fp8(int type) { return type == e4m3 || type == e4m3_fnuz; }
constexpr uint64_t bytes_of(int type) { return type == f32 ? 4 : is_fp8(type) ? 1 : 2; }

struct Matrix {
  int type;
  uint64_t rows, columns;
  int64_t ld;  // elements from one column to the next
};

// From the first element to behind the last one.
constexpr uint64_t bytes_of(const Matrix& matrix) {
  return (static_cast<uint64_t>(matrix.ld) * (matrix.columns - 1) + matrix.rows) * bytes_of(matrix.type);
}

// d = alpha op(a) op(b) + beta c. Element (i, j) of the product is multiplied by a_scales[i] b_scales[j] (outer-vector
// scales), and bias[i] of d's type is added, unless they are null. Sums are taken in fp32 in `pieces`, each of which
// adds up every pieces-th term. A workspace that has room for the pieces' sums receives them before they are added; one
// that has not is overwritten.
struct Gemm {
  static constexpr const char* name = "library gemm";
  Matrix a, b, c, d;
  bool transpose_a, transpose_b;
  float alpha, beta;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  const float *a_scales, *b_scales;
  const void* bias;
  uint64_t pieces;
  void* workspace;
  size_t workspace_bytes;

  void run() const;
};

}  // namespace fake
