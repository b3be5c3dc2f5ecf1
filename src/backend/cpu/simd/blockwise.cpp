#include "backend/cpu/simd/blockwise.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

float largest_magnitude(const float* x, int64_t n) {
  uint32_t max_bits = 0;  // magnitudes sort like their bits
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffU;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  return __builtin_bit_cast(float, max_bits);
}

// Quantises to a dynamic map (tensor/dynamic_map.h). The decade of a magnitude is found by comparisons, its cell in the
// decade by arithmetic. Rounding may put a value next to a cell's border into the neighbouring cell; therefore the code
// is then corrected by at most one with the exact borders in `tables`. The compiler vectorises the loop.
template <bool is_signed>
void find_codes(uint8_t* __restrict codes, const float* __restrict x, int64_t n, float divisor,
                const BlockwiseTables& tables) {
  const float* __restrict lower = tables.lower;
  const float* __restrict upper = tables.upper;
  constexpr int zero = is_signed ? 127 : 0;
  constexpr int cells_of_decade_0 = is_signed ? 1 : 2;
  for (int64_t i = 0; i < n; ++i) {
    const float value = x[i] / divisor;
    const float magnitude = value < 0 ? -value : value;
    float scale = 1e6F;  // maps the decade to 0.1 .. 1
    int cells = cells_of_decade_0;
    const auto if_from = [&](float bound, float decade_scale, int decade_cells) {
      scale = magnitude >= bound ? decade_scale : scale;
      cells = magnitude >= bound ? decade_cells : cells;
    };
    if_from(1e-6F, 1e5F, 2 * cells_of_decade_0);
    if_from(1e-5F, 1e4F, 4 * cells_of_decade_0);
    if_from(1e-4F, 1e3F, 8 * cells_of_decade_0);
    if_from(1e-3F, 1e2F, 16 * cells_of_decade_0);
    if_from(1e-2F, 1e1F, 32 * cells_of_decade_0);
    if_from(1e-1F, 1e0F, 64 * cells_of_decade_0);
    const auto count = static_cast<float>(cells);
    float cell = (magnitude * scale - 0.1F) * (count * (1 / 0.9F));
    cell = cell > 0 ? cell : 0;
    cell = cell < count - 1 ? cell : count - 1;
    // From the code of 0: the cells of the lower decades, and those up to this one.
    const int distance = cells - (is_signed ? 0 : 1) + static_cast<int>(cell);
    int code = is_signed && value < 0 ? zero - distance : zero + distance;
    code += (value > upper[code] ? 1 : 0) - (value <= lower[code] ? 1 : 0);
    codes[i] = static_cast<uint8_t>(code);
  }
}

float quantize(uint8_t* codes, const float* x, int64_t n, const BlockwiseTables& tables) {
  const float largest = largest_magnitude(x, n);
  const float divisor = largest > 0 ? largest : 1;
  tables.is_signed ? find_codes<true>(codes, x, n, divisor, tables) : find_codes<false>(codes, x, n, divisor, tables);
  return largest;
}

void dequantize(float* x, const uint8_t* codes, int64_t n, const float* map, float scale) {
  for (int64_t i = 0; i < n; ++i) x[i] = map[codes[i]] * scale;
}

}  // namespace

const BlockwiseKernels blockwise_kernels = {quantize, dequantize};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
