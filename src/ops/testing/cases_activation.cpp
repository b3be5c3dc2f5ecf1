#include "base/error.h"
#include "ops/testing/activations.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

std::vector<double> all_activated(const std::vector<double>& x, ops::Activation activation) {
  std::vector<double> y;
  for (const double z : x) y.push_back(activated(activation, z));
  return y;
}

OpCase forward_case(ops::Activation activation, DType dtype, int64_t n, bool in_place, double spread) {
  OpCase c{.op = "activation",
           .name = fmt::format("{} {} n={} of {}{}", ops::name(activation), name(dtype), n, spread,
                               in_place ? " y is x" : "")};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {n}, Role::output}, {"x", dtype, {n}, Role::input, normal(spread)}};
  c.operands[0].alias = in_place ? 1 : -1;
  c.run = [activation](ops::Context& context, const Arguments& a) { ops::activation(context, a[0], a[1], activation); };
  c.reference = [activation](Values& v, Conditions& conditions) {
    v[0] = all_activated(v[1], activation);
    for (const double z : v[1]) conditions[0].sum.push_back(activated_condition(activation, z));
  };
  c.precision = Precision::rounded_once;
  c.flops = 5.0 * static_cast<double>(n);
  c.bytes = 2.0 * static_cast<double>(n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase backward_case(ops::Activation activation, DType dtype, int64_t n, int alias, double spread) {
  const char* shared = alias < 0 ? "" : alias == 1 ? " dx is dy" : " dx is x";
  OpCase c{.op = "activation_backward",
           .name = fmt::format("{} {} n={} of {}{}", ops::name(activation), name(dtype), n, spread, shared)};
  c.operands = {{"dx", dtype, {n}, Role::output}, {"dy", dtype, {n}}, {"x", dtype, {n}, Role::input, normal(spread)}};
  c.operands[0].alias = alias;
  c.run = [activation](ops::Context& context, const Arguments& a) {
    ops::activation_backward(context, a[0], a[1], a[2], activation);
  };
  c.reference = [activation](Values& v, Conditions& conditions) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = v[1][i] * activation_slope(activation, v[2][i]);
      conditions[0].sum.push_back(std::abs(v[1][i]) * activation_slope_condition(activation, v[2][i]));
    }
  };
  if (n < 2000) {
    c.gradients = {{.gradient = 0,
                    .input = 2,
                    .cotangent = 1,
                    .forward = [activation](const Values&, const std::vector<double>& at) {
                      return all_activated(at, activation);
                    }}};
  }
  c.flops = 10.0 * static_cast<double>(n);
  c.bytes = 3.0 * static_cast<double>(n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> activation_cases() {
  std::vector<OpCase> cases;
  for (const ops::Activation activation : every_activation) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t n : {1, 3, 17, 33, 131}) {
        cases.push_back(forward_case(activation, dtype, n, n == 33, 2.0));
        cases.push_back(backward_case(activation, dtype, n, n == 17 ? 1 : n == 33 ? 2 : -1, 2.0));
      }
      cases.push_back(forward_case(activation, dtype, 0, false, 1.0));
      cases.push_back(forward_case(activation, dtype, 165, false, 40.0));  // exp of these exceeds the range of fp32
      cases.push_back(backward_case(activation, dtype, 165, -1, 40.0));
      cases.push_back(forward_case(activation, dtype, 40000, false, 1.0));
      cases.push_back(backward_case(activation, dtype, 40000, -1, 1.0));
      cases.push_back(timing(forward_case(activation, dtype, int64_t{1024} * 5632, false, 1.0)));
      cases.push_back(timing(backward_case(activation, dtype, int64_t{1024} * 5632, -1, 1.0)));
    }
  }
  return cases;
}

}  // namespace ingot::ops::testing
