#include "base/error.h"
#include "base/half.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_bytes.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

constexpr float epsilon = 1e-5F;

double as_stored(DType dtype, double value) {
  const auto rounded = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16 ? bf16_to_float(float_to_bf16(rounded)) : rounded);
}

double rstd_of(const double* x, size_t n) {
  double mean = 0;
  for (size_t j = 0; j < n; ++j) mean += x[j] * x[j] / static_cast<double>(n);
  return std::pow(mean + static_cast<double>(epsilon), -0.5);
}

std::vector<double> normalised(const std::vector<double>& x, const std::vector<double>& weight, float offset) {
  std::vector<double> y(x.size());
  const size_t n = weight.size();
  for (size_t start = 0; start < x.size(); start += n) {
    const double rstd = rstd_of(&x[start], n);
    for (size_t j = 0; j < n; ++j) {
      y[start + j] = x[start + j] * rstd * (weight[j] + static_cast<double>(offset));
    }
  }
  return y;
}

OpCase forward_case(DType dtype, int64_t rows, int64_t n, bool in_place, bool with_rstd, float offset) {
  OpCase c{.op = "rms_norm",
           .name = fmt::format("{} T={} H={}{}{}{}", name(dtype), rows, n, in_place ? " y is x" : "",
                               with_rstd ? "" : " without rstd", offset == 0 ? "" : " offset")};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, n}, Role::output},
                {"rstd", DType::f32, {rows}, Role::output},
                {"x", dtype, {rows, n}, Role::input, normal(1.5, 0.25)},
                {"weight", DType::f32, {n}, Role::input, normal(0.3, 1.0)}};
  c.operands[0].alias = in_place ? 2 : -1;
  c.operands[1].absent = !with_rstd;
  c.run = [offset](ops::Context& context, const Arguments& a) {
    ops::rms_norm(context, a[0], a[1], a[2], a[3], {.epsilon = epsilon, .weight_offset = offset});
  };
  c.reference = [n, offset](Values& v, Conditions& conditions) {
    v[0] = normalised(v[2], v[3], offset);
    const auto width = static_cast<size_t>(n);
    for (size_t t = 0; t < v[1].size(); ++t) v[1][t] = rstd_of(&v[2][t * width], width);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double factor = std::abs(v[3][i % width]) + static_cast<double>(offset);
      conditions[0].sum.push_back(std::abs(v[2][i]) * v[1][i / width] * factor + 2.0 * std::abs(v[0][i]));
    }
  };
  c.precision = Precision::rounded_once;
  c.length = n;
  c.flops = 4.0 * static_cast<double>(rows * n);
  c.bytes = 2.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase backward_case(DType dtype, int64_t rows, int64_t n, ops::RmsNormBackwardAttributes attributes,
                     bool with_dweight) {
  OpCase c{
      .op = "rms_norm_backward",
      .name = fmt::format("{} T={} H={}{}{}{}{}", name(dtype), rows, n, attributes.accumulate_dx ? " adding to dx" : "",
                          attributes.accumulate_dweight ? " adding to dweight" : "",
                          with_dweight ? "" : " without dweight", attributes.weight_offset == 0 ? "" : " offset")};
  // x and its rstd depend on each other, so both are drawn here.
  const auto width = static_cast<size_t>(n);
  const Drawn drawn([=] {
    std::vector<double> x(static_cast<size_t>(rows * n));
    std::vector<double> rstd(static_cast<size_t>(rows));
    RandomStream random(5, rows, n);
    for (double& value : x) value = as_stored(dtype, 1.5 * random.normal());
    for (size_t t = 0; t < rstd.size(); ++t) rstd[t] = as_stored(DType::f32, rstd_of(&x[t * width], width));
    return Values{x, rstd};
  });
  c.operands = {{"dx", dtype, {rows, n}, attributes.accumulate_dx ? Role::inout : Role::output},
                {"dweight", DType::f32, {n}, attributes.accumulate_dweight ? Role::inout : Role::output},
                {"dy", dtype, {rows, n}},
                {"x", dtype, {rows, n}, Role::input, drawn[0]},
                {"weight", DType::f32, {n}, Role::input, normal(0.3, 1.0)},
                {"rstd", DType::f32, {rows}, Role::input, drawn[1]}};
  c.operands[1].absent = !with_dweight;
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::rms_norm_backward(context, a[0], a[1], a[2], a[3], a[4], a[5], attributes);
  };
  // With the unit vector u = x rstd: dx = rstd (g - u mean(g u)).
  c.reference = [attributes, width](Values& v, Conditions& conditions) {
    std::vector<double> dweight(width, 0.0);
    const auto offset = static_cast<double>(attributes.weight_offset);
    const auto count = static_cast<double>(width);
    std::vector<double>&of_dx = conditions[0].sum, &of_dweight = conditions[1].sum;
    of_dx = attributes.accumulate_dx ? absolute(v[0]) : std::vector<double>(v[0].size(), 0.0);
    conditions[1].cancels = true;
    of_dweight = attributes.accumulate_dweight ? absolute(v[1]) : dweight;
    for (size_t t = 0; t < v[5].size(); ++t) {
      double mean = 0;
      double of_mean = 0;
      for (size_t j = 0; j < width; ++j) {
        const size_t i = t * width + j;
        mean += v[2][i] * (v[4][j] + offset) * v[3][i] * v[5][t] / count;
        dweight[j] += v[2][i] * v[3][i] * v[5][t];
        of_mean += std::abs(v[2][i] * v[3][i]) * (std::abs(v[4][j]) + offset) * v[5][t] / count;
        of_dweight[j] += 2.0 * std::abs(v[2][i] * v[3][i]) * v[5][t];
      }
      of_mean += (3.0 + std::sqrt(count)) * std::abs(mean);
      for (size_t j = 0; j < width; ++j) {
        const size_t i = t * width + j;
        const double value = v[5][t] * (v[2][i] * (v[4][j] + offset) - v[3][i] * v[5][t] * mean);
        v[0][i] = (attributes.accumulate_dx ? v[0][i] : 0.0) + value;
        of_dx[i] +=
            v[5][t] * (2.0 * std::abs(v[2][i]) * (std::abs(v[4][j]) + offset) + std::abs(v[3][i]) * v[5][t] * of_mean);
      }
    }
    for (size_t j = 0; j < width; ++j) v[1][j] = (attributes.accumulate_dweight ? v[1][j] : 0.0) + dweight[j];
  };
  c.length = std::max(rows, n);
  if (rows * n > 0 && rows * n < 2000) {
    const float offset = attributes.weight_offset;
    c.gradients = {
        {.gradient = 0,
         .input = 3,
         .cotangent = 2,
         .forward = [offset](const Values& v, const std::vector<double>& at) { return normalised(at, v[4], offset); }}};
    if (with_dweight) {
      c.gradients.push_back({.gradient = 1,
                             .input = 4,
                             .cotangent = 2,
                             .forward = [offset](const Values& v, const std::vector<double>& at) {
                               return normalised(v[3], at, offset);
                             }});
    }
  }
  c.scratch = [rows, n](int, bool) { return ops::rms_norm_bytes(rows, n); };
  c.flops = 10.0 * static_cast<double>(rows * n);
  c.bytes = 3.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t n : {1, 2, 7, 16, 33, 64, 131, 576}) {
      cases.push_back(forward_case(dtype, 3, n, n == 33, true, n == 16 || n == 33 ? 1.0F : 0.0F));
      if (n == 1) continue;  // dx is dominated by cancellation
      cases.push_back(backward_case(
          dtype, 3, n,
          {.accumulate_dx = n == 33, .accumulate_dweight = n == 7, .weight_offset = n == 16 || n == 33 ? 1.0F : 0.0F},
          n != 64));
    }
    cases.push_back(forward_case(dtype, 0, 8, false, true, 0.0F));
    cases.push_back(forward_case(dtype, 70, 1000, false, false, 1.0F));
    cases.push_back(backward_case(dtype, 0, 8, {}, true));
    cases.push_back(backward_case(dtype, 200, 48, {}, true));
    cases.push_back(backward_case(dtype, 129, 100, {.accumulate_dx = true, .accumulate_dweight = true}, true));
    cases.push_back(timing(forward_case(dtype, 1024, 2048, false, true, 0.0F)));
    cases.push_back(timing(backward_case(dtype, 1024, 2048, {.accumulate_dx = true}, true)));
  }
  cases.push_back(large(forward_case(DType::bf16, 16384, 4096, false, true, 0.0F)));
  cases.push_back(large(backward_case(DType::bf16, 16384, 4096, {}, true), {3, 5}));
  return cases;
}

}  // namespace ingot::ops::testing
