#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/fixed_sum.h"
#include "ops/fixed_sum_bytes.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// The smallest e with |x| < 2^e; 0 for x = 0.
int bound_of(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent;
}

// Contributions of all magnitudes: ties between two fixed-point numbers, numbers that are so small that most round to
// 0, and numbers up to 2^range.
Fill contributions(int32_t range, int bits) {
  return [range, bits](std::vector<double>& values, RandomStream& random) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double unit = std::ldexp(1.0, range - bits);
      const double whole = std::floor(4096 * random.uniform_double());
      switch (i % 4) {
        case 0: values[i] = (whole + 0.5) * unit; break;
        case 1: values[i] = -(whole + 0.5) * unit; break;
        case 2: values[i] = 0.4 * random.normal() * unit; break;
        default: values[i] = std::ldexp(2 * random.uniform_double() - 1, range); break;
      }
      values[i] = static_cast<double>(static_cast<float>(values[i]));
    }
  };
}

OpCase add_case(int64_t n, int32_t range, int bits, bool accumulate, double special = 0) {
  OpCase c{.op = "add_fixed",
           .name = fmt::format("n={} range={} bits={}{}{}", n, range, bits, accumulate ? " added" : "",
                               special != 0 ? fmt::format(" with {}", special) : "")};
  const Fill sums = [bits](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = std::floor(std::ldexp(2 * random.uniform_double() - 1, bits));
  };
  const Fill x = [range, bits, special](std::vector<double>& values, RandomStream& random) {
    contributions(range, bits)(values, random);
    if (special != 0 && !values.empty()) values[values.size() / 2] = special;
  };
  const Role role = accumulate ? Role::inout : Role::output;
  c.operands = {{"sum", DType::i64, {n}, role, sums},
                {"largest", DType::f32, {1}, role, fixed({1e-3})},
                {"x", DType::f32, {n}, Role::input, x},
                {"range", DType::i32, {1}, Role::input, fixed({static_cast<double>(range)})}};
  c.run = [bits, accumulate](ops::Context& context, const Arguments& a) {
    ops::add_fixed(context, a[0], a[1], a[2], a[3], bits, accumulate);
  };
  c.reference = [bits, accumulate, range](Values& v, Conditions&) {
    double largest = accumulate ? v[1][0] : 0;
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double x = v[2][i];
      const bool counts = std::isfinite(x) && bound_of(x) <= range;
      v[0][i] = (accumulate ? v[0][i] : 0) + (counts ? std::nearbyint(std::ldexp(x, bits - range)) : 0);
      largest = std::max(largest, std::isfinite(x) ? std::abs(x) : std::numeric_limits<double>::infinity());
    }
    v[1][0] = largest;
  };
  c.precision = Precision::exact;
  c.scratch = [n](int, bool) { return ops::add_fixed_bytes(n); };
  c.flops = 2.0 * static_cast<double>(n);
  c.bytes = (accumulate ? 20.0 : 12.0) * static_cast<double>(n);
  return c;
}

OpCase convert_case(int64_t n, int32_t range, int bits, double largest) {
  OpCase c{.op = "fixed_to_float", .name = fmt::format("n={} range={} bits={} largest={}", n, range, bits, largest)};
  const Fill sums = [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = std::floor(std::ldexp(2 * random.uniform_double() - 1, 50));
  };
  c.operands = {{"y", DType::f32, {n}, Role::output},
                {"sum", DType::i64, {n}, Role::input, sums},
                {"largest", DType::f32, {1}, Role::input, fixed({largest})},
                {"range", DType::i32, {1}, Role::input, fixed({static_cast<double>(range)})}};
  c.run = [bits](ops::Context& context, const Arguments& a) {
    ops::fixed_to_float(context, a[0], a[1], a[2], a[3], bits);
  };
  c.reference = [bits, range](Values& v, Conditions&) {
    const bool right = std::isfinite(v[2][0]) && bound_of(v[2][0]) <= range;
    for (size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = right ? std::ldexp(v[1][i], range - bits) : std::numeric_limits<double>::quiet_NaN();
    }
  };
  c.precision = Precision::exact;
  c.flops = static_cast<double>(n);
  c.bytes = 12.0 * static_cast<double>(n);
  return c;
}

OpCase ranges_case() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> largest = {0, 1, 0.999, 3e-5, 1e30, 1e-30, 1e-40, infinity, 7};
  const std::vector<double> ranges = {20, 20, -3, 20, 0, 20, 20, 11, 9};
  OpCase c{.op = "next_ranges", .name = fmt::format("n={}", ranges.size())};
  const auto n = static_cast<int64_t>(ranges.size());
  c.operands = {{"range", DType::i32, {n}, Role::inout, fixed(ranges)},
                {"largest", DType::f32, {n}, Role::input, fixed(largest)}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::next_ranges(context, a[0], a[1]); };
  c.reference = [](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      if (v[1][i] > 0 && std::isfinite(v[1][i])) v[0][i] = std::max(-88, bound_of(v[1][i]) + 6);
    }
  };
  c.flops = static_cast<double>(n);
  c.bytes = 12.0 * static_cast<double>(n);
  return c;
}

}  // namespace

std::vector<OpCase> fixed_sum_cases() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<OpCase> cases;
  for (const bool accumulate : {false, true}) {
    for (const int64_t n : {0, 1, 17, 131, 9001}) cases.push_back(add_case(n, 4, 40, accumulate));
    cases.push_back(add_case(131, -88, 49, accumulate));
    cases.push_back(add_case(131, 100, 30, accumulate));
    cases.push_back(add_case(131, 3, 20, accumulate));
    for (const double special : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 16.0, 15.9375}) {
      cases.push_back(add_case(131, 4, 40, accumulate, special));
      cases.push_back(add_case(131, 130, 40, accumulate, special));
    }
  }
  for (const int64_t n : {0, 1, 131, 5000}) cases.push_back(convert_case(n, 4, 51, 15.9));
  cases.push_back(convert_case(131, 4, 51, 16));
  for (const int32_t range : {4, 130}) cases.push_back(convert_case(131, range, 51, infinity));
  cases.push_back(convert_case(131, -88, 62, 1e-30));
  cases.push_back(convert_case(131, 20, 57, 0));
  cases.push_back(ranges_case());
  cases.push_back(timing(ranges_case()));
  cases.push_back(timing(add_case(int64_t{1} << 22, 4, 40, true)));
  cases.push_back(timing(convert_case(int64_t{1} << 22, 4, 51, 15.9)));
  cases.push_back(large(add_case(int64_t{1} << 27, 4, 40, true)));
  cases.push_back(large(convert_case(int64_t{1} << 27, 4, 51, 15.9)));
  return cases;
}

}  // namespace ingot::ops::testing
