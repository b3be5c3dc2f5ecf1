// Shared by the fake cuBLASLt and hipBLASLt, which multiply column-major matrices in host memory. Written from the
// vendors' documentation of their matmul functions, not from our binding.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "src/base/half.h"

namespace fake {

constexpr int f32 = 0;
constexpr int bf16 = 14;
constexpr int f16 = 2;
constexpr int e4m3 = 28;
constexpr int e4m3_fnuz = 1000;  // AMD's alone
constexpr bool is_fp8(int type) { return type == e4m3 || type == e4m3_fnuz; }
constexpr uint64_t bytes_of(int type) { return type == f32 ? 4 : is_fp8(type) ? 1 : 2; }

struct Matrix {
  int type;
  uint64_t rows, columns;
  int64_t ld;
};

struct Product {
  int compute_type, scale_type;
  std::map<int, int32_t> attributes;
  std::map<int, const float*> scales;
  const void* bias = nullptr;
};

// The numbers of a vendor's attributes: those that are pointers, and those of the epilogue.
struct Attributes {
  int a_scales, b_scales, bias, bias_type, epilogue;
};

// Attributes have 4 bytes, pointers 8. With INGOT_FAKE_OLD_BLAS_LT in the environment this is a library without scale
// modes (attributes 31 and 32).
inline bool set_attribute(Product& product, int attribute, const void* value, size_t bytes, const Attributes& of) {
  const bool scales = attribute == of.a_scales || attribute == of.b_scales;
  if (bytes != (scales || attribute == of.bias ? sizeof(void*) : sizeof(int32_t))) return false;
  if ((attribute == 31 || attribute == 32) && std::getenv("INGOT_FAKE_OLD_BLAS_LT") != nullptr) return false;
  if (scales) {
    std::memcpy(&product.scales[attribute], value, bytes);
  } else if (attribute == of.bias) {
    std::memcpy(&product.bias, value, bytes);
  } else {
    std::memcpy(&product.attributes[attribute], value, bytes);
  }
  return true;
}

struct Preference {
  std::map<int, uint64_t> attributes;
};

// Of the epilogues only 4 exists here, BIAS: a vector of the type of d, aligned, with an element for each row of d.
inline bool epilogue_fits(const Product& product, const Matrix& d, const Attributes& of) {
  const auto epilogue = product.attributes.find(of.epilogue);
  if (epilogue == product.attributes.end()) return product.bias == nullptr;
  const auto type = product.attributes.find(of.bias_type);
  return epilogue->second == 4 && product.bias != nullptr && reinterpret_cast<uintptr_t>(product.bias) % 16 == 0 &&
         type != product.attributes.end() && type->second == d.type;
}

inline float element(const Matrix& matrix, const void* data, uint64_t row, uint64_t column) {
  const uint64_t at = row + column * static_cast<uint64_t>(matrix.ld);
  if (matrix.type == f32) return static_cast<const float*>(data)[at];
  if (is_fp8(matrix.type)) {
    // 1 sign bit, 4 exponent bits with bias 7 (8 in FNUZ), 3 mantissa bits.
    const int code = static_cast<const uint8_t*>(data)[at];
    const int exponent = code >> 3 & 15;
    const int bias = matrix.type == e4m3 ? 7 : 8;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(code & 7), 1 - bias - 3)
                                          : std::ldexp(static_cast<float>((code & 7) + 8), exponent - bias - 3);
    return (code & 128) != 0 ? -magnitude : magnitude;
  }
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return matrix.type == f16 ? ingot::f16_to_float(bits) : ingot::bf16_to_float(bits);
}

inline void set(const Matrix& matrix, void* data, uint64_t row, uint64_t column, float value) {
  const uint64_t at = row + column * static_cast<uint64_t>(matrix.ld);
  if (matrix.type == f32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  static_cast<uint16_t*>(data)[at] = matrix.type == f16 ? ingot::float_to_f16(value) : ingot::float_to_bf16(value);
}

// d = alpha op(a) op(b) + beta c. False when the shapes do not match or a leading dimension is too small.
inline bool fits(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, const Matrix& c,
                 const Matrix& d) {
  for (const Matrix* matrix : {&a, &b, &c, &d}) {
    if (matrix->ld < static_cast<int64_t>(matrix->rows)) return false;
  }
  const uint64_t m = transpose_a ? a.columns : a.rows;
  const uint64_t k = transpose_a ? a.rows : a.columns;
  const uint64_t other_k = transpose_b ? b.columns : b.rows;
  const uint64_t n = transpose_b ? b.rows : b.columns;
  if (is_fp8(a.type) && (!transpose_a || transpose_b || k % 16 != 0)) return false;  // fp8 matmuls are TN only
  return k == other_k && m == d.rows && n == d.columns && m == c.rows && n == c.columns && c.type == d.type;
}

// Element (i, j) of the product is multiplied by a_scales[i] b_scales[j] (outer-vector scales), and bias[i] of d's type
// is added, unless they are null. Sums are taken in `pieces`, each of which adds up every pieces-th term.
inline void multiply(float alpha, const Matrix& a, const void* a_data, bool transpose_a, const Matrix& b,
                     const void* b_data, bool transpose_b, float beta, const Matrix& c, const void* c_data,
                     const Matrix& d, void* d_data, const float* a_scales, const float* b_scales, const void* bias,
                     uint64_t pieces) {
  const Matrix vector{d.type, d.rows, 1, static_cast<int64_t>(d.rows)};
  const uint64_t k = transpose_a ? a.rows : a.columns;
  for (uint64_t column = 0; column < d.columns; ++column) {
    for (uint64_t row = 0; row < d.rows; ++row) {
      float sum = 0;
      for (uint64_t piece = 0; piece < pieces; ++piece) {
        float partial = 0;
        for (uint64_t i = piece; i < k; i += pieces) {
          const float left = transpose_a ? element(a, a_data, i, row) : element(a, a_data, row, i);
          const float right = transpose_b ? element(b, b_data, column, i) : element(b, b_data, i, column);
          partial += left * right;
        }
        sum += partial;
      }
      if (a_scales != nullptr) sum *= a_scales[row];
      if (b_scales != nullptr) sum *= b_scales[column];
      const float before = beta != 0 ? beta * element(c, c_data, row, column) : 0;
      const float shift = bias != nullptr ? element(vector, bias, row, 0) : 0;
      set(d, d_data, row, column, alpha * sum + before + shift);
    }
  }
}

// Whether every leading dimension and pointer is a multiple of 16 bytes.
inline bool aligned(const Matrix& matrix) { return static_cast<uint64_t>(matrix.ld) * bytes_of(matrix.type) % 16 == 0; }
inline bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Whether a gemm that needs `needed` bytes of workspace was given them, aligned to 256 bytes, and none where it needs
// none. Overwrites the workspace.
inline bool takes_workspace(size_t needed, void* workspace, size_t bytes) {
  if (needed == 0) return workspace == nullptr && bytes == 0;
  if (bytes < needed || workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return false;
  std::memset(workspace, 0xff, bytes);
  return true;
}

}  // namespace fake
