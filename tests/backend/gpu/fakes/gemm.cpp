#include "tests/backend/gpu/fakes/gemm.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "src/base/half.h"

namespace fake {
namespace {

float element(const Matrix& matrix, const void* data, uint64_t row, uint64_t column) {
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

void set(const Matrix& matrix, void* data, uint64_t row, uint64_t column, float value) {
  const uint64_t at = row + column * static_cast<uint64_t>(matrix.ld);
  if (matrix.type == f32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  static_cast<uint16_t*>(data)[at] = matrix.type == f16 ? ingot::float_to_f16(value) : ingot::float_to_bf16(value);
}

}  // namespace

void Gemm::run() const {
  const uint64_t m = d.rows, n = d.columns;
  const Matrix vector{d.type, d.rows, 1, static_cast<int64_t>(d.rows)};
  const uint64_t k = transpose_a ? a.rows : a.columns;
  if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
  std::vector<float> left(k * m), right(k), partial(m);
  for (uint64_t i = 0; i < k; ++i) {
    for (uint64_t row = 0; row < m; ++row)
      left[i * m + row] = transpose_a ? element(a, a_data, i, row) : element(a, a_data, row, i);
  }
  // The sums of the pieces of a column.
  std::vector<float> sums(pieces * m);
  const bool in_workspace = workspace_bytes >= pieces * m * n * sizeof(float);
  for (uint64_t column = 0; column < n; ++column) {
    for (uint64_t i = 0; i < k; ++i)
      right[i] = transpose_b ? element(b, b_data, column, i) : element(b, b_data, i, column);
    float* const of_pieces = in_workspace ? static_cast<float*>(workspace) + column * pieces * m : sums.data();
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      partial.assign(m, 0.0F);
      for (uint64_t i = piece; i < k; i += pieces) {
        const float* const terms = left.data() + i * m;
        for (uint64_t row = 0; row < m; ++row) partial[row] += terms[row] * right[i];
      }
      std::memcpy(of_pieces + piece * m, partial.data(), m * sizeof(float));
    }
    for (uint64_t row = 0; row < m; ++row) {
      float sum = 0;
      for (uint64_t piece = 0; piece < pieces; ++piece) sum += of_pieces[piece * m + row];
      if (a_scales != nullptr) sum *= a_scales[row];
      if (b_scales != nullptr) sum *= b_scales[column];
      const float before = beta != 0 ? beta * element(c, c_data, row, column) : 0;
      const float shift = bias != nullptr ? element(vector, bias, row, 0) : 0;
      set(d, d_data, row, column, alpha * sum + before + shift);
    }
  }
}

}  // namespace fake
