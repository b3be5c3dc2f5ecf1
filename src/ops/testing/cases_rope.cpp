#include <complex>

#include "base/error.h"
#include "ops/rope.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// Heads with 2 `pairs` rotated elements and `rest` others.
OpCase rope_case(DType dtype, int64_t rows, int64_t heads, int64_t pairs, int64_t rest, int64_t last, bool inverse,
                 bool in_place) {
  OpCase c{.op = "rope",
           .name = fmt::format("{} T={} heads={} D={} of {} to {}{}{}", name(dtype), rows, heads, 2 * pairs,
                               2 * pairs + rest, last, inverse ? " inverse" : "", in_place ? " in place" : "")};
  const int64_t width = heads * (2 * pairs + rest);
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, width}, Role::output},
                {"x", dtype, {rows, width}},
                {"positions", DType::i32, {rows}, Role::input, integers(0, last)},
                {"frequencies", DType::f32, {pairs}}};
  c.operands[0].alias = in_place ? 1 : -1;
  c.operands[3].fill = [pairs](std::vector<double>& values, RandomStream&) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
    }
  };
  c.run = [heads, inverse](ops::Context& context, const Arguments& a) {
    ops::rope(context, a[0], a[1], a[2], a[3], {.heads = heads, .inverse = inverse});
  };
  // A pair is a complex number, multiplied by e^(i angle).
  c.reference = [pairs, rest, inverse, width](Values& v, Conditions& conditions) {
    const auto half = static_cast<size_t>(pairs);
    conditions[0].sum = absolute(v[1]);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const size_t place = i % static_cast<size_t>(2 * pairs + rest);  // index in the head
      if (place >= 2 * half) v[0][i] = v[1][i];
      if (place >= half) continue;
      const auto position = static_cast<float>(v[2][i / static_cast<size_t>(width)]);
      const float angle = position * static_cast<float>(v[3][place]);
      const auto rotated = std::complex<double>(v[1][i], v[1][i + half]) *
                           std::polar(1.0, inverse ? -static_cast<double>(angle) : static_cast<double>(angle));
      v[0][i] = rotated.real();
      v[0][i + half] = rotated.imag();
      // Sines and cosines have absolute errors, up to 3e-7 for large angles (5 units of roundoff).
      conditions[0].sum[i] = conditions[0].sum[i + half] = 2.0 * (std::abs(v[1][i]) + std::abs(v[1][i + half]));
    }
  };
  c.flops = 3.0 * static_cast<double>(rows * width);
  c.bytes = 2.0 * static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t pairs : {1, 5, 8, 10, 32, 40, 64, 70, 128}) {
      cases.push_back(rope_case(dtype, 7, 3, pairs, 0, 131072, pairs == 10, pairs == 40));
    }
    for (const auto& [pairs, rest] : {std::pair<int64_t, int64_t>{4, 24}, {8, 1}, {10, 60}, {16, 48}, {70, 33}}) {
      cases.push_back(rope_case(dtype, 7, 3, pairs, rest, 2048, pairs == 10, pairs == 16));
    }
    cases.push_back(rope_case(dtype, 300, 2, 8, 0, 2000, false, false));
    cases.push_back(rope_case(dtype, 9, 1, 16, 0, 100000000, false, false));
    cases.push_back(rope_case(dtype, 0, 2, 8, 0, 20, false, false));
    cases.push_back(rope_case(dtype, 1024, 32, 32, 0, 2047, false, true));
    cases.back().timing_only = true;
  }
  cases.push_back(large(rope_case(DType::bf16, 16384, 32, 64, 0, 8191, false, true)));
  return cases;
}

}  // namespace ingot::ops::testing
