#include "ops/blockwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/blockwise.h"
#include "tensor/dynamic_map.h"

namespace ingot::cpu {
namespace {

using ops::Context;

BlockwiseTables tables_of(bool is_signed) {
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

bool is_halted(const Tensor& decision) { return decision && decision.as<double>()[2] != 0; }

// Calls body(block, first element, number of elements).
template <class Body>
void for_blocks(Context& context, int64_t n, Body body) {
  constexpr int64_t grain = element_grain / ops::blockwise_elements;
  context.threads->parallel_for(0, ops::blockwise_blocks(n), grain, [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block) {
      const int64_t first = block * ops::blockwise_elements;
      body(block, first, std::min(ops::blockwise_elements, n - first));
    }
  });
}

template <const BlockwiseKernels& K>
void run_quantize(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                  ops::BlockwiseAttributes attributes) {
  if (is_halted(attributes.decision)) return;
  const BlockwiseTables tables = tables_of(attributes.is_signed);
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
void reference_quantize(Context&, const Tensor& codes, const Tensor& scales, const Tensor& x,
                        ops::BlockwiseAttributes attributes) {
  if (is_halted(attributes.decision)) return;
  const BlockwiseTables tables = tables_of(attributes.is_signed);
  for (int64_t block = 0; block < scales.elements(); ++block) {
    const float* values = x.as<float>();
    const float* begin = values + block * ops::blockwise_elements;
    const float* end = std::min(begin + ops::blockwise_elements, values + x.elements());
    float largest = 0;
    for (const float* value = begin; value < end; ++value) largest = std::max(largest, std::abs(*value));
    scales.as<float>()[block] = largest;
    for (const float* value = begin; value < end; ++value) {
      const float share = largest > 0 ? *value / largest : 0.0F;
      const float* bound = std::lower_bound(tables.upper, tables.upper + 255, share);
      codes.as<uint8_t>()[value - values] = static_cast<uint8_t>(bound - tables.upper);
    }
  }
}

void reference_dequantize(Context&, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  for (int64_t i = 0; i < x.elements(); ++i) {
    const auto value = static_cast<double>(dynamic_map(is_signed)[codes.as<uint8_t>()[i]]);
    set_element(x, i, value * element(scales, i / ops::blockwise_elements));
  }
}

}  // namespace

void register_blockwise(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::QuantizeBlockwise, run_quantize, blockwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::DequantizeBlockwise, run_dequantize, blockwise_kernels);
  registry.add<ops::QuantizeBlockwise>(DeviceKind::cpu, "reference", reference_quantize);
  registry.add<ops::DequantizeBlockwise>(DeviceKind::cpu, "reference", reference_dequantize);
}

}  // namespace ingot::cpu
