// Gemms of activations in int8 with weights in blocks of 8-bit or 4-bit integers (ops/linear_int8.h).
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/levels.h"

namespace ingot::cpu {

// Rounds a row of k elements to int8, in the layout that the gemms of the level and of `four_bits` read. It takes at
// most int8_group_bytes for four blocks of 32 elements, the last of which may be missing.
constexpr int64_t int8_group_bytes = 384;
constexpr int64_t int8_row_bytes(int64_t k) { return (k + 127) / 128 * int8_group_bytes; }
template <class T>
using QuantizeInt8 = void(unsigned char* q, const T* x, int64_t k, bool four_bits);

// y[t * y_row + r] (+)= the product of row t of x, in the form of QuantizeInt8, and row r of w, for t < tokens and
// r < rows. y is `y_float` if not null, else `y_typed`.
template <class T>
using Int8Gemm = void(float* y_float, T* y_typed, int64_t y_row, const unsigned char* x, const void* w, int64_t tokens,
                      int64_t rows, int64_t k, bool accumulate);

struct Int8GemmKernels {
  ForTypes<QuantizeInt8> quantize;
  ForTypes<Int8Gemm> q8, q4;
};

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const Int8GemmKernels int8_gemm_kernels;)
