#include "base/error.h"
#include "ops/glu.h"
#include "ops/testing/activations.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

std::vector<double> gated(const std::vector<double>& gate, const std::vector<double>& up, ops::Activation activation) {
  std::vector<double> y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = activated(activation, gate[i]) * up[i];
  return y;
}

OpCase forward_case(ops::Activation activation, DType dtype, int64_t rows, int64_t n, int alias, double spread) {
  const char* shared = alias < 0 ? "" : alias == 1 ? " y is gate" : " y is up";
  OpCase c{.op = "glu",
           .name = fmt::format("{} {} T={} F={} of {}{}", ops::name(activation), name(dtype), rows, n, spread, shared)};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, n}, Role::output},
                {"gate", dtype, {rows, n}, Role::input, normal(spread)},
                {"up", dtype, {rows, n}}};
  c.operands[0].alias = alias;
  c.run = [activation](ops::Context& context, const Arguments& a) { ops::glu(context, a[0], a[1], a[2], activation); };
  c.reference = [activation](Values& v, Conditions& conditions) {
    v[0] = gated(v[1], v[2], activation);
    for (size_t i = 0; i < v[0].size(); ++i) {
      conditions[0].sum.push_back(activated_condition(activation, v[1][i]) * std::abs(v[2][i]));
    }
  };
  c.precision = Precision::rounded_once;
  c.flops = 5.0 * static_cast<double>(rows * n);
  c.bytes = 3.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase joined_case(ops::Activation activation, DType dtype, int64_t rows, int64_t n, double spread) {
  OpCase c{.op = "glu_joined",
           .name = fmt::format("{} {} T={} F={} of {}", ops::name(activation), name(dtype), rows, n, spread)};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, n}, Role::output}, {"x", dtype, {rows, 2 * n}, Role::input, normal(spread)}};
  c.run = [activation](ops::Context& context, const Arguments& a) { ops::glu_joined(context, a[0], a[1], activation); };
  c.reference = [=](Values& v, Conditions& conditions) {
    const auto width = static_cast<size_t>(n);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const size_t gate = i / width * 2 * width + i % width;
      v[0][i] = activated(activation, v[1][gate]) * v[1][gate + width];
      conditions[0].sum.push_back(activated_condition(activation, v[1][gate]) * std::abs(v[1][gate + width]));
    }
  };
  c.precision = Precision::rounded_once;
  c.flops = 5.0 * static_cast<double>(rows * n);
  c.bytes = 3.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase backward_case(ops::Activation activation, DType dtype, int64_t rows, int64_t n, bool in_place, double spread) {
  OpCase c{.op = "glu_backward",
           .name = fmt::format("{} {} T={} F={} of {}{}", ops::name(activation), name(dtype), rows, n, spread,
                               in_place ? " in place" : "")};
  c.operands = {{"dgate", dtype, {rows, n}, Role::output},
                {"dup", dtype, {rows, n}, Role::output},
                {"dy", dtype, {rows, n}},
                {"gate", dtype, {rows, n}, Role::input, normal(spread)},
                {"up", dtype, {rows, n}}};
  if (in_place) {
    c.operands[0].alias = 3;
    c.operands[1].alias = 4;
  }
  c.run = [activation](ops::Context& context, const Arguments& a) {
    ops::glu_backward(context, a[0], a[1], a[2], a[3], a[4], activation);
  };
  c.reference = [activation](Values& v, Conditions& conditions) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = v[2][i] * v[4][i] * activation_slope(activation, v[3][i]);
      v[1][i] = v[2][i] * activated(activation, v[3][i]);
      conditions[0].sum.push_back(std::abs(v[2][i] * v[4][i]) * activation_slope_condition(activation, v[3][i]));
      conditions[1].sum.push_back(std::abs(v[2][i]) * activated_condition(activation, v[3][i]));
    }
  };
  if (rows * n < 2000) {
    c.gradients = {{.gradient = 0,
                    .input = 3,
                    .cotangent = 2,
                    .forward = [activation](const Values& v,
                                            const std::vector<double>& at) { return gated(at, v[4], activation); }},
                   {.gradient = 1,
                    .input = 4,
                    .cotangent = 2,
                    .forward = [activation](const Values& v, const std::vector<double>& at) {
                      return gated(v[3], at, activation);
                    }}};
  }
  c.flops = 12.0 * static_cast<double>(rows * n);
  c.bytes = 5.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> glu_cases() {
  std::vector<OpCase> cases;
  for (const ops::Activation activation : every_activation) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t n : {1, 7, 16, 33, 131}) {
        cases.push_back(forward_case(activation, dtype, 3, n, -1, 2.0));
        cases.push_back(joined_case(activation, dtype, 3, n, 2.0));
        cases.push_back(backward_case(activation, dtype, 3, n, false, 2.0));
      }
      cases.push_back(forward_case(activation, dtype, 0, 5, -1, 1.0));
      cases.push_back(forward_case(activation, dtype, 5, 33, 1, 40.0));  // exp of these exceeds the range of fp32
      cases.push_back(forward_case(activation, dtype, 5, 33, 2, 1.0));
      cases.push_back(backward_case(activation, dtype, 5, 33, true, 40.0));
      cases.push_back(forward_case(activation, dtype, 33, 1000, -1, 1.0));
      cases.push_back(joined_case(activation, dtype, 6, 2200, 1.0));
      cases.push_back(joined_case(activation, dtype, 0, 5, 1.0));
      cases.push_back(backward_case(activation, dtype, 33, 1000, false, 1.0));
      cases.push_back(timing(forward_case(activation, dtype, 1024, 5632, -1, 1.0)));
      cases.push_back(timing(joined_case(activation, dtype, 1024, 5632, 1.0)));
      cases.push_back(timing(backward_case(activation, dtype, 1024, 5632, false, 1.0)));
    }
  }
  cases.push_back(large(forward_case(ops::Activation::silu, DType::bf16, 8192, 14336, -1, 1.0)));
  cases.push_back(large(backward_case(ops::Activation::silu, DType::bf16, 8192, 14336, false, 1.0)));
  return cases;
}

}  // namespace ingot::ops::testing
