#include "ops/muon_bytes.h"

#include <algorithm>

#include "ops/adamw_bytes.h"

namespace ingot::ops {

namespace {

constexpr size_t alignment = 64;  // Arena's

size_t matrix_bytes(int64_t rows, int64_t columns, size_t element) {
  return (static_cast<size_t>(rows) * static_cast<size_t>(columns) * element + alignment - 1) / alignment * alignment;
}

}  // namespace

size_t newton_schulz_bytes(int64_t rows, int64_t columns, size_t iterate_bytes) {
  const int64_t side = std::min(rows, columns);
  return matrix_bytes(rows, columns, iterate_bytes) + matrix_bytes(side, side, iterate_bytes) +
         matrix_bytes(side, side, sizeof(float)) + alignment + sum_squares_bytes(rows * columns);
}

size_t muon_bytes(int64_t rows, int64_t columns, size_t iterate_bytes) {
  return matrix_bytes(rows, columns, sizeof(float)) + newton_schulz_bytes(rows, columns, iterate_bytes);
}

}  // namespace ingot::ops
