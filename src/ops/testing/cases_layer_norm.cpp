#include "base/error.h"
#include "base/half.h"
#include "ops/layer_norm.h"
#include "ops/layer_norm_bytes.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

constexpr float epsilon = 1e-5F;

double as_stored(DType dtype, double value) {
  const auto rounded = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16 ? bf16_to_float(float_to_bf16(rounded)) : rounded);
}

struct Statistics {
  double mean, rstd;
};

// Computes the variance as the mean of squares minus the square of the mean; long double has enough digits for that.
Statistics statistics(const double* x, size_t n) {
  long double sum = 0;
  long double squares = 0;
  for (size_t j = 0; j < n; ++j) {
    sum += static_cast<long double>(x[j]);
    squares += static_cast<long double>(x[j]) * x[j];
  }
  const long double count = n;
  const long double variance = squares / count - sum / count * (sum / count);
  return {static_cast<double>(sum / count), static_cast<double>(1 / std::sqrt(variance + epsilon))};
}

std::vector<double> normalised(const std::vector<double>& x, const std::vector<double>& weight,
                               const std::vector<double>& bias) {
  std::vector<double> y(x.size());
  const size_t n = weight.size();
  for (size_t start = 0; start < x.size(); start += n) {
    const auto [mean, rstd] = statistics(&x[start], n);
    for (size_t j = 0; j < n; ++j) y[start + j] = bias[j] + weight[j] * rstd * (x[start + j] - mean);
  }
  return y;
}

struct Choice {
  bool in_place = false;
  bool with_statistics = true;
  bool with_bias = true;
  double mean = 0.25;  // of x
};

OpCase forward_case(DType dtype, int64_t rows, int64_t n, Choice choice) {
  OpCase c{.op = "layer_norm",
           .name = fmt::format("{} T={} H={} around {}{}{}{}", name(dtype), rows, n, choice.mean,
                               choice.in_place ? " y is x" : "", choice.with_statistics ? "" : " without mean and rstd",
                               choice.with_bias ? "" : " without bias")};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, n}, Role::output},
                {"mean", DType::f32, {rows}, Role::output},
                {"rstd", DType::f32, {rows}, Role::output},
                {"x", dtype, {rows, n}, Role::input, normal(1.5, choice.mean)},
                {"weight", DType::f32, {n}, Role::input, normal(0.3, 1.0)},
                {"bias", DType::f32, {n}, Role::input, normal(0.5)}};
  c.operands[0].alias = choice.in_place ? 3 : -1;
  c.operands[1].absent = c.operands[2].absent = !choice.with_statistics;
  c.operands[5].absent = !choice.with_bias;
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::layer_norm(context, a[0], a[1], a[2], a[3], a[4], a[5], epsilon);
  };
  const bool with_bias = choice.with_bias;
  c.reference = [n, with_bias](Values& v, Conditions& conditions) {
    const auto width = static_cast<size_t>(n);
    v[0] = normalised(v[3], v[4], with_bias ? v[5] : std::vector<double>(width, 0.0));
    const double root = std::sqrt(static_cast<double>(n));
    conditions[0].cancels = conditions[1].cancels = true;
    for (size_t t = 0; t < v[1].size(); ++t) {
      const double* x = &v[3][t * width];
      const auto [mean, rstd] = statistics(x, width);
      v[1][t] = mean;
      v[2][t] = rstd;
      double of_mean = 0;
      for (size_t j = 0; j < width; ++j) of_mean += std::abs(x[j]) / static_cast<double>(n);
      conditions[1].sum.push_back(of_mean);
      // The mean's error shifts x - mean. rstd has half the relative error of a sum of n squares; the shift adds only
      // its square to the variance, because the differences add up to 0.
      for (size_t j = 0; j < width; ++j) {
        const double scaled = std::abs(v[4][j]) * rstd;
        conditions[0].sum.push_back((with_bias ? std::abs(v[5][j]) : 0.0) +
                                    scaled *
                                        (std::abs(x[j] - mean) * (3.0 + 0.5 * root) + of_mean + root * std::abs(mean)));
      }
    }
  };
  c.precision = Precision::rounded_once;
  c.length = n;
  c.flops = 6.0 * static_cast<double>(rows * n);
  c.bytes = 2.0 * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase backward_case(DType dtype, int64_t rows, int64_t n, ops::LayerNormBackwardAttributes attributes,
                     bool with_dweight, bool with_dbias, bool in_place = false) {
  OpCase c{.op = "layer_norm_backward",
           .name = fmt::format(
               "{} T={} H={}{}{}{}{}{}", name(dtype), rows, n, attributes.accumulate_dx ? " adding to dx" : "",
               attributes.accumulate_dweight ? " adding to dweight" : "", with_dweight ? "" : " without dweight",
               with_dbias ? "" : " without dbias", in_place ? " dx is dy" : "")};
  // x and its statistics depend on each other, so they are drawn here.
  const auto width = static_cast<size_t>(n);
  const Drawn drawn([=] {
    std::vector<double> x(static_cast<size_t>(rows * n));
    std::vector<double> means(static_cast<size_t>(rows));
    std::vector<double> rstds(static_cast<size_t>(rows));
    RandomStream random(5, rows, n);
    for (double& value : x) value = as_stored(dtype, 0.5 + 1.5 * random.normal());
    for (size_t t = 0; t < rstds.size(); ++t) {
      const auto [mean, rstd] = statistics(&x[t * width], width);
      means[t] = as_stored(DType::f32, mean);
      rstds[t] = as_stored(DType::f32, rstd);
    }
    return Values{x, means, rstds};
  });
  const Role gradient_role = attributes.accumulate_dweight ? Role::inout : Role::output;
  c.operands = {{"dx", dtype, {rows, n}, attributes.accumulate_dx ? Role::inout : Role::output},
                {"dweight", DType::f32, {n}, gradient_role},
                {"dbias", DType::f32, {n}, gradient_role},
                {"dy", dtype, {rows, n}},
                {"x", dtype, {rows, n}, Role::input, drawn[0]},
                {"weight", DType::f32, {n}, Role::input, normal(0.3, 1.0)},
                {"mean", DType::f32, {rows}, Role::input, drawn[1]},
                {"rstd", DType::f32, {rows}, Role::input, drawn[2]}};
  c.operands[0].alias = in_place ? 3 : -1;
  c.operands[1].absent = !with_dweight;
  c.operands[2].absent = !with_dbias;
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::layer_norm_backward(context, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], attributes);
  };
  // dx = rstd (I - 1/n - u u^T / n) g: the part of g that is neither constant nor parallel to u.
  c.reference = [attributes, width](Values& v, Conditions& conditions) {
    std::vector<double> dweight(width, 0.0);
    std::vector<double> dbias(width, 0.0);
    std::vector<double>&of_dx = conditions[0].sum, &of_dweight = conditions[1].sum, &of_dbias = conditions[2].sum;
    of_dx = attributes.accumulate_dx ? absolute(v[0]) : std::vector<double>(v[0].size(), 0.0);
    of_dweight = attributes.accumulate_dweight ? absolute(v[1]) : dweight;
    conditions[1].cancels = conditions[2].cancels = true;
    of_dbias = attributes.accumulate_dweight ? absolute(v[2]) : dbias;
    const auto count = static_cast<double>(width);
    for (size_t t = 0; t < v[7].size(); ++t) {
      double constant = 0;
      double along = 0;
      double of_constant = 0;
      double of_along = 0;
      const auto unit = [&](size_t j) { return (v[4][t * width + j] - v[6][t]) * v[7][t]; };
      for (size_t j = 0; j < width; ++j) {
        const double dy = v[3][t * width + j];
        constant += dy * v[5][j] / count;
        along += dy * v[5][j] * unit(j) / count;
        dweight[j] += dy * unit(j);
        dbias[j] += dy;
        of_constant += std::abs(dy * v[5][j]) / count;
        of_along += std::abs(dy * v[5][j] * unit(j)) / count;
        of_dweight[j] += 2.0 * std::abs(dy * unit(j));
        of_dbias[j] += std::abs(dy);
      }
      of_constant += std::sqrt(count) * std::abs(constant);
      of_along += (3.0 + std::sqrt(count)) * std::abs(along);
      for (size_t j = 0; j < width; ++j) {
        const double value = v[7][t] * (v[3][t * width + j] * v[5][j] - constant - unit(j) * along);
        v[0][t * width + j] = (attributes.accumulate_dx ? v[0][t * width + j] : 0.0) + value;
        of_dx[t * width + j] +=
            v[7][t] * (2.0 * std::abs(v[3][t * width + j] * v[5][j]) + of_constant + std::abs(unit(j)) * of_along);
      }
    }
    for (size_t j = 0; j < width; ++j) {
      v[1][j] = (attributes.accumulate_dweight ? v[1][j] : 0.0) + dweight[j];
      v[2][j] = (attributes.accumulate_dweight ? v[2][j] : 0.0) + dbias[j];
    }
  };
  c.length = std::max(rows, n);
  if (rows * n > 0 && rows * n < 2000) {
    c.gradients = {
        {.gradient = 0, .input = 4, .cotangent = 3, .forward = [](const Values& v, const std::vector<double>& at) {
           return normalised(at, v[5], std::vector<double>(v[5].size(), 0.0));
         }}};
    if (with_dweight) {
      c.gradients.push_back(
          {.gradient = 1, .input = 5, .cotangent = 3, .forward = [](const Values& v, const std::vector<double>& at) {
             return normalised(v[4], at, std::vector<double>(at.size(), 0.0));
           }});
    }
    if (with_dbias) {
      c.gradients.push_back(
          {.gradient = 2, .cotangent = 3, .forward = [](const Values& v, const std::vector<double>& at) {
             return normalised(v[4], v[5], at);
           }});
    }
  }
  c.scratch = [rows, n](int, bool) { return ops::layer_norm_bytes(rows, n); };
  c.flops = 12.0 * static_cast<double>(rows * n);
  c.bytes =
      (attributes.accumulate_dx ? 4.0 : 3.0) * static_cast<double>(rows * n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> layer_norm_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t n : {1, 2, 7, 16, 33, 64, 131, 576}) {
      cases.push_back(forward_case(dtype, 3, n, {.in_place = n == 33, .with_bias = n != 7}));
      if (n <= 2) continue;  // dx is dominated by cancellation
      cases.push_back(backward_case(dtype, 3, n, {.accumulate_dx = n == 33, .accumulate_dweight = n == 7}, n != 64,
                                    n != 16, n == 131));
    }
    cases.push_back(forward_case(dtype, 0, 8, {}));
    cases.push_back(forward_case(dtype, 70, 1000, {.with_statistics = false}));
    cases.push_back(forward_case(dtype, 5, 300, {.mean = 100.0}));  // mean much larger than the standard deviation
    cases.push_back(backward_case(dtype, 0, 8, {}, true, true));
    cases.push_back(backward_case(dtype, 200, 48, {}, true, true));
    cases.push_back(backward_case(dtype, 129, 100, {.accumulate_dx = true, .accumulate_dweight = true}, true, true));
    cases.push_back(backward_case(dtype, 65, 100, {}, false, false));
    cases.push_back(timing(forward_case(dtype, 1024, 2048, {})));
    cases.push_back(timing(backward_case(dtype, 1024, 2048, {.accumulate_dx = true}, true, true)));
  }
  cases.push_back(large(forward_case(DType::bf16, 32768, 1600, {})));
  cases.push_back(large(backward_case(DType::bf16, 32768, 1600, {}, true, true), {4, 6, 7}));
  return cases;
}

}  // namespace ingot::ops::testing
