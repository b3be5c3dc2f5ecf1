// The tables of 8-bit states, and their reference kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/update.h"

namespace ingot::cpu {
namespace {

// By bisection.
float quantize_block(uint8_t* codes, const float* x, int64_t n, const BlockwiseTables& tables) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  for (int64_t i = 0; i < n; ++i) {
    const float share = largest > 0 ? x[i] / largest : 0.0F;
    const float* bound = std::lower_bound(tables.upper, tables.upper + 255, share);
    codes[i] = static_cast<uint8_t>(bound - tables.upper);
  }
  return largest;
}

void dequantize_block(float* x, const uint8_t* codes, int64_t n, const float* map, float scale) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(static_cast<double>(map[codes[i]]) * static_cast<double>(scale));
  }
}

}  // namespace

BlockwiseTables blockwise_tables(bool is_signed) {
  const std::array<float, 256>& map = dynamic_map(is_signed);
  BlockwiseTables tables{};
  tables.is_signed = is_signed;
  tables.lower[0] = -std::numeric_limits<float>::infinity();
  tables.upper[255] = std::numeric_limits<float>::infinity();
  for (size_t c = 0; c < 255; ++c) {
    const double between = 0.5 * (static_cast<double>(map[c]) + static_cast<double>(map[c + 1]));
    tables.upper[c] = tables.lower[c + 1] = static_cast<float>(between);
  }
  return tables;
}

const BlockwiseKernels reference_blockwise = {quantize_block, dequantize_block};

}  // namespace ingot::cpu
