#include "ops/testing/blockwise_states.h"

#include <algorithm>
#include <cmath>

#include "ops/blockwise.h"
#include "tensor/dynamic_map.h"

namespace ingot::ops::testing {

namespace {

// codes [N] and scales [ceil(N / 256)] = the nearest codes of x [N].
void encode_blocks(std::vector<double>& codes, std::vector<double>& scales, const std::vector<double>& x,
                   bool is_signed) {
  const std::array<float, 256>& map = dynamic_map(is_signed);
  for (size_t block = 0; block < scales.size(); ++block) {
    const size_t end = std::min(x.size(), 256 * (block + 1));
    double largest = 0;
    for (size_t i = 256 * block; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    scales[block] = largest;
    for (size_t i = 256 * block; i < end; ++i) {
      const double share = largest > 0 ? x[i] / largest : 0.0;
      size_t nearest = 0;
      for (size_t code = 1; code < map.size(); ++code) {
        if (std::abs(static_cast<double>(map[code]) - share) < std::abs(static_cast<double>(map[nearest]) - share)) {
          nearest = code;
        }
      }
      codes[i] = static_cast<double>(nearest);
    }
  }
}

}  // namespace

Fill spread() {
  return [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = std::pow(10.0, -8.0 * random.uniform_double()) * random.normal();
  };
}

OpCase with_coded_states(OpCase plain, const std::vector<CodedOperand>& states, bool halted) {
  OpCase c = std::move(plain);
  c.name += " 8-bit states";
  const size_t first_scales = c.operands.size();
  for (const CodedOperand& state : states) {
    Operand& operand = c.operands[state.operand];
    const int64_t n = operand.shape.elements();
    operand.dtype = DType::u8;
    operand.fill = integers(0, 255);
    const Fill scales = [most = state.scale](std::vector<double>& values, RandomStream& random) {
      for (double& value : values) value = most * random.uniform_double();
    };
    c.operands.push_back({operand.name + "_scales", DType::f32, {ops::blockwise_blocks(n)}, Role::inout, scales});
    c.bytes -= 6.0 * static_cast<double>(n);  // read and written: a byte in place of four
  }
  if (halted) return c;
  c.reference = [update = c.reference, states, first_scales](Values& v, Conditions& conditions) {
    for (size_t s = 0; s < states.size(); ++s) {
      std::vector<double>& codes = v[states[s].operand];
      const std::array<float, 256>& map = dynamic_map(states[s].is_signed);
      for (size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<double>(map[static_cast<size_t>(codes[i])]) * v[first_scales + s][i / 256];
      }
    }
    update(v, conditions);
    for (size_t s = 0; s < states.size(); ++s) {
      const std::vector<double> values = v[states[s].operand];
      encode_blocks(v[states[s].operand], v[first_scales + s], values, states[s].is_signed);
      // A scale is one of its block's values; codes are compared exactly.
      std::vector<double>& terms = conditions[states[s].operand].sum;
      std::vector<double>& of_scales = conditions[first_scales + s].sum;
      if (!terms.empty()) of_scales.assign(v[first_scales + s].size(), 0);
      for (size_t i = 0; i < terms.size(); ++i) of_scales[i / 256] = std::max(of_scales[i / 256], terms[i]);
      terms.clear();
    }
  };
  return c;
}

}  // namespace ingot::ops::testing
