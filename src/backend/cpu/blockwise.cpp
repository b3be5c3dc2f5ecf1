#include "ops/blockwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/blockwise.h"
#include "backend/cpu/update.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const BlockwiseKernels& K>
void run_quantize(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                  ops::BlockwiseAttributes attributes) {
  if (is_halted(attributes.decision)) return;
  const BlockwiseTables tables = blockwise_tables(attributes.is_signed);
  for_blocks(context, x.elements(), [&](int64_t block, int64_t first, int64_t count) {
    scales.as<float>()[block] = K.quantize(codes.as<uint8_t>() + first, x.as<float>() + first, count, tables);
  });
}

template <const BlockwiseKernels& K>
void run_dequantize(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  const float* map = dynamic_map(is_signed).data();
  for_blocks(context, x.elements(), [&](int64_t block, int64_t first, int64_t count) {
    K.dequantize(x.as<float>() + first, codes.as<uint8_t>() + first, count, map, scales.as<float>()[block]);
  });
}

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

void register_blockwise(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::QuantizeBlockwise, run_quantize, blockwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::DequantizeBlockwise, run_dequantize, blockwise_kernels);
  registry.add<ops::QuantizeBlockwise>(DeviceKind::cpu, "reference", run_quantize<reference_blockwise>);
  registry.add<ops::DequantizeBlockwise>(DeviceKind::cpu, "reference", run_dequantize<reference_blockwise>);
}

}  // namespace ingot::cpu
