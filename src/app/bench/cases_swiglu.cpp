#include "app/bench/op_table.h"
#include "base/error.h"
#include "ops/swiglu.h"

namespace ingot::bench {
namespace {

double silu(double z) { return 0.5 * z * (1.0 + std::tanh(0.5 * z)); }

std::vector<double> gated(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = silu(gate[i]) * up[i];
  return y;
}

OpCase forward_case(DType dtype, int64_t rows, int64_t n, int alias, double spread) {
  const char* shared = alias < 0 ? "" : alias == 1 ? " y is gate" : " y is up";
  OpCase c{.op = "swiglu", .name = fmt::format("{} T={} F={} of {}{}", name(dtype), rows, n, spread, shared)};
  c.operands = {{"y", dtype, {rows, n}, Role::output},
                {"gate", dtype, {rows, n}, Role::input, normal(spread)},
                {"up", dtype, {rows, n}}};
  c.operands[0].alias = alias;
  c.run = [](ops::Context& context, const Arguments& a) { ops::swiglu(context, a[0], a[1], a[2]); };
  c.reference = [](Values& v, std::vector<double>&) { v[0] = gated(v[1], v[2]); };
  c.flops = 5.0 * static_cast<double>(rows * n);
  c.bytes = 3.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase backward_case(DType dtype, int64_t rows, int64_t n, bool in_place, double spread) {
  OpCase c{.op = "swiglu_backward",
           .name = fmt::format("{} T={} F={} of {}{}", name(dtype), rows, n, spread, in_place ? " in place" : "")};
  c.operands = {{"dgate", dtype, {rows, n}, Role::output},
                {"dup", dtype, {rows, n}, Role::output},
                {"dy", dtype, {rows, n}},
                {"gate", dtype, {rows, n}, Role::input, normal(spread)},
                {"up", dtype, {rows, n}}};
  if (in_place) {
    c.operands[0].alias = 3;
    c.operands[1].alias = 4;
  }
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::swiglu_backward(context, a[0], a[1], a[2], a[3], a[4]);
  };
  // silu(z) = z t with t = (1 + tanh(z/2)) / 2, so its slope is t + z (1 - tanh^2(z/2)) / 4.
  c.reference = [](Values& v, std::vector<double>&) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double h = std::tanh(0.5 * v[3][i]);
      v[0][i] = v[2][i] * v[4][i] * (0.5 * (1.0 + h) + 0.25 * v[3][i] * (1.0 - h * h));
      v[1][i] = v[2][i] * silu(v[3][i]);
    }
  };
  if (rows * n < 2000) {
    c.gradients = {
        {.gradient = 0,
         .input = 3,
         .cotangent = 2,
         .forward = [](const Values& v, const std::vector<double>& at) { return gated(at, v[4]); }},
        {.gradient = 1, .input = 4, .cotangent = 2, .forward = [](const Values& v, const std::vector<double>& at) {
           return gated(v[3], at);
         }}};
  }
  c.flops = 12.0 * static_cast<double>(rows * n);
  c.bytes = 5.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> swiglu_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t n : {1, 7, 16, 33, 131}) {
      cases.push_back(forward_case(dtype, 3, n, -1, 2.0));
      cases.push_back(backward_case(dtype, 3, n, false, 2.0));
    }
    cases.push_back(forward_case(dtype, 0, 5, -1, 1.0));
    cases.push_back(forward_case(dtype, 5, 33, 1, 40.0));  // exp of these leaves the range of fp32
    cases.push_back(forward_case(dtype, 5, 33, 2, 1.0));
    cases.push_back(backward_case(dtype, 5, 33, true, 40.0));
    cases.push_back(forward_case(dtype, 33, 1000, -1, 1.0));
    cases.push_back(backward_case(dtype, 33, 1000, false, 1.0));
    cases.push_back(timing(forward_case(dtype, 1024, 5632, -1, 1.0)));
    cases.push_back(timing(backward_case(dtype, 1024, 5632, false, 1.0)));
  }
  return cases;
}

}  // namespace ingot::bench
