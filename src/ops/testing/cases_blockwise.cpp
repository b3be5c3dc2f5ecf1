#include <cmath>

#include "base/error.h"
#include "ops/blockwise.h"
#include "ops/testing/blockwise_states.h"
#include "ops/testing/op_table.h"
#include "tensor/dynamic_map.h"

namespace ingot::ops::testing {
namespace {

// Numbers of very different sizes, as optimizer states are; some are 0.
Fill spread(bool is_signed) {
  return [is_signed](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) {
      value = std::pow(10.0, -8.0 * random.uniform_double()) * random.normal();
      if (!is_signed) value = std::abs(value);
      if (random.below(16) == 0) value = 0;
    }
  };
}

OpCase quantize_case(int64_t n, bool is_signed, std::optional<bool> halted = {}) {
  OpCase c{.op = "quantize_blockwise",
           .name = fmt::format("{} n={}{}", is_signed ? "signed" : "unsigned", n,
                               !halted   ? ""
                               : *halted ? " halted"
                                         : " decided")};
  c.operands = {{"codes", DType::u8, {n}, Role::inout, integers(0, 255)},
                {"scales", DType::f32, {ops::blockwise_blocks(n)}, Role::inout},
                {"x", DType::f32, {n}, Role::input, spread(is_signed)},
                {"decision", DType::f64, {3}, Role::input, fixed({7, 0.125, halted.value_or(false) ? 1.0 : 0.0})}};
  c.operands[3].absent = !halted;
  c.run = [is_signed](ops::Context& context, const Arguments& a) {
    ops::quantize_blockwise(context, a[0], a[1], a[2], {is_signed, a[3]});
  };
  c.reference = [is_signed, halted](Values& v, Conditions&) {
    if (halted.value_or(false)) return;
    encode_blocks(v[0], v[1], v[2], is_signed);
  };
  c.flops = 20.0 * static_cast<double>(n);
  c.bytes = 5.0 * static_cast<double>(n);
  return c;
}

OpCase dequantize_case(int64_t n, bool is_signed) {
  OpCase c{.op = "dequantize_blockwise", .name = fmt::format("{} n={}", is_signed ? "signed" : "unsigned", n)};
  c.operands = {{"x", DType::f32, {n}, Role::output},
                {"codes", DType::u8, {n}, Role::input, integers(0, 255)},
                {"scales", DType::f32, {ops::blockwise_blocks(n)}, Role::input, spread(false)}};
  c.run = [is_signed](ops::Context& context, const Arguments& a) {
    ops::dequantize_blockwise(context, a[0], a[1], a[2], is_signed);
  };
  c.reference = [is_signed](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = static_cast<double>(dynamic_map(is_signed)[static_cast<size_t>(v[1][i])]) * v[2][i / 256];
    }
  };
  c.flops = static_cast<double>(n);
  c.bytes = 5.0 * static_cast<double>(n);
  return c;
}

}  // namespace

std::vector<OpCase> blockwise_cases() {
  std::vector<OpCase> cases;
  for (const bool is_signed : {true, false}) {
    for (const int64_t n : {0, 1, 255, 256, 257, 5000}) {
      cases.push_back(quantize_case(n, is_signed));
      cases.push_back(dequantize_case(n, is_signed));
    }
    for (const bool halted : {false, true}) cases.push_back(quantize_case(300, is_signed, halted));
  }
  cases.push_back(timing(quantize_case(int64_t{1} << 22, false)));
  cases.push_back(timing(dequantize_case(int64_t{1} << 22, false)));
  return cases;
}

}  // namespace ingot::ops::testing
