#include "ops/blockwise.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "tensor/dynamic_map.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// bounds[c]: a value above it is nearer to code c + 1 than to code c.
std::array<float, 255> bounds_between(const std::array<float, 256>& map) {
  std::array<float, 255> bounds{};
  for (size_t c = 0; c < bounds.size(); ++c) {
    bounds[c] = static_cast<float>(0.5 * (static_cast<double>(map[c]) + static_cast<double>(map[c + 1])));
  }
  return bounds;
}

// The number of bounds below `value`, by bisection without branches.
uint8_t code_of(const std::array<float, 255>& bounds, float value) {
  size_t code = 0;
  for (size_t step = 128; step > 0; step /= 2) code += value > bounds[code + step - 1] ? step : 0;
  return static_cast<uint8_t>(code);
}

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

void quantize(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
              ops::BlockwiseAttributes attributes) {
  if (attributes.decision && attributes.decision.as<double>()[2] != 0) return;
  const std::array<float, 255> bounds = bounds_between(dynamic_map(attributes.is_signed));
  for_blocks(context, x.elements(), [&](int64_t block, int64_t first, int64_t count) {
    const float* values = x.as<float>() + first;
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
    scales.as<float>()[block] = largest;
    const float divisor = largest > 0 ? largest : 1.0F;
    for (int64_t i = 0; i < count; ++i) codes.as<uint8_t>()[first + i] = code_of(bounds, values[i] / divisor);
  });
}

void dequantize(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  const std::array<float, 256>& map = dynamic_map(is_signed);
  for_blocks(context, x.elements(), [&](int64_t block, int64_t first, int64_t count) {
    const float scale = scales.as<float>()[block];
    for (int64_t i = 0; i < count; ++i) x.as<float>()[first + i] = map[codes.as<uint8_t>()[first + i]] * scale;
  });
}

}  // namespace

void register_blockwise(ops::Registry& registry, Levels) {
  registry.add<ops::QuantizeBlockwise>(DeviceKind::cpu, "reference", quantize);
  registry.add<ops::DequantizeBlockwise>(DeviceKind::cpu, "reference", dequantize);
}

}  // namespace ingot::cpu
