#include "base/error.h"
#include "base/half.h"
#include "ops/elementwise.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

constexpr DType real_types[] = {DType::f32, DType::bf16};

std::vector<double> bounded(const std::vector<double>& x, bool soft, float most) {
  const auto cap = static_cast<double>(most);
  std::vector<double> y;
  for (const double value : x) {
    // tanh expressed with exp
    y.push_back(soft ? cap * (1.0 - 2.0 / (std::exp(2.0 * value / cap) + 1.0)) : std::clamp(value, -cap, cap));
  }
  return y;
}

OpCase add_case(DType dtype, int64_t n, int alias) {
  const char* shared = alias < 0 ? "" : alias == 1 ? " y is a" : " y is b";
  OpCase c{.op = "add", .name = fmt::format("{} n={}{}", name(dtype), n, shared)};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {n}, Role::output}, {"a", dtype, {n}}, {"b", dtype, {n}}};
  c.operands[0].alias = alias;
  c.run = [](ops::Context& context, const Arguments& a) { ops::add(context, a[0], a[1], a[2]); };
  c.reference = [](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] = v[1][i] + v[2][i];
  };
  c.precision = Precision::rounded_once;
  c.flops = static_cast<double>(n);
  c.bytes = static_cast<double>(n) * 3.0 * static_cast<double>(size_of(dtype));
  return c;
}

OpCase scale_case(DType to, DType from, int64_t n, float factor) {
  OpCase c{.op = "scale", .name = fmt::format("{} to {} n={} by {}", name(from), name(to), n, factor)};
  c.operands = {{"y", to, {n}, Role::output}, {"x", from, {n}}};
  c.run = [factor](ops::Context& context, const Arguments& a) { ops::scale(context, a[0], a[1], factor); };
  c.reference = [factor](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] = v[1][i] * static_cast<double>(factor);
  };
  c.precision = factor == 1.0F ? Precision::exact : Precision::rounded_once;
  c.flops = static_cast<double>(n);
  c.bytes = static_cast<double>(n) * static_cast<double>(size_of(to) + size_of(from));
  return c;
}

// clamp and softcap, in place or not.
OpCase bounding_case(DType dtype, int64_t n, bool soft, float most, bool in_place) {
  OpCase c{.op = soft ? "softcap" : "clamp",
           .name = fmt::format("{} n={} to {}{}", name(dtype), n, most, in_place ? " y is x" : "")};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {n}, Role::output}, {"x", dtype, {n}, Role::input, normal(2.0)}};
  c.operands[0].alias = in_place ? 1 : -1;
  c.run = [soft, most](ops::Context& context, const Arguments& a) {
    soft ? ops::softcap(context, a[0], a[1], most) : ops::clamp(context, a[0], a[1], most);
  };
  c.reference = [soft, most](Values& v, Conditions& conditions) {
    v[0] = bounded(v[1], soft, most);
    for (const double y : v[0]) conditions[0].sum.push_back(2.0 * std::abs(y));  // tanh is within 4 ulp
  };
  c.precision = soft ? Precision::rounded_once : Precision::exact;
  c.flops = static_cast<double>(n);
  c.bytes = 2.0 * static_cast<double>(n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase bounding_backward_case(DType dtype, int64_t n, bool soft, float most, int alias) {
  const char* shared = alias < 0 ? "" : alias == 1 ? " dx is dy" : " dx is the other input";
  OpCase c{.op = soft ? "softcap_backward" : "clamp_backward",
           .name = fmt::format("{} n={} to {}{}", name(dtype), n, most, shared)};
  // x is drawn here, because the input of softcap's backward is softcap(x).
  const auto cap = static_cast<double>(most);
  const auto draw = [soft](int64_t count) {
    std::vector<double> x(static_cast<size_t>(count));
    RandomStream random(11, count);
    for (double& value : x) value = (soft ? 0.7 : 2.0) * random.normal();  // no y rounds to the cap
    return x;
  };
  const Drawn input([=] { return Values{soft ? bounded(draw(n), true, most) : draw(n)}; });
  c.operands = {
      {"dx", dtype, {n}, Role::output}, {"dy", dtype, {n}}, {soft ? "y" : "x", dtype, {n}, Role::input, input[0]}};
  c.operands[0].alias = alias;
  c.run = [soft, most](ops::Context& context, const Arguments& a) {
    soft ? ops::softcap_backward(context, a[0], a[1], a[2], most)
         : ops::clamp_backward(context, a[0], a[1], a[2], most);
  };
  c.reference = [soft, cap](Values& v, Conditions& conditions) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double x = v[2][i];
      const double inside = x >= -cap && x <= cap ? 1.0 : 0.0;
      v[0][i] = v[1][i] * (soft ? (cap - x) * (cap + x) / (cap * cap) : inside);
      conditions[0].sum.push_back(std::abs(v[1][i]) * (1.0 + 3.0 * (x / cap) * (x / cap)));
    }
  };
  c.precision = soft ? Precision::rounded_once : Precision::exact;
  // Perturbs x, which for softcap is recovered from the rounded y. At clamp's kinks there is no gradient.
  const std::vector<double> x = soft || n > 1000 ? std::vector<double>() : draw(n);  // long ones are only timed
  const bool kink = std::any_of(x.begin(), x.end(), [=](double value) {
    const auto rounded = static_cast<float>(value);
    return std::abs(dtype == DType::bf16 ? bf16_to_float(float_to_bf16(rounded)) : rounded) == most;
  });
  if (soft || !kink) {
    c.gradients = {{.gradient = 0,
                    .input = 2,
                    .cotangent = 1,
                    .forward = [soft, most, cap](const Values& v, const std::vector<double>& at) {
                      if (!soft) return bounded(at, false, most);
                      std::vector<double> moved(at.size());
                      for (size_t i = 0; i < at.size(); ++i) {
                        moved[i] = cap * std::atanh(v[2][i] / cap) + (at[i] - v[2][i]);
                      }
                      return bounded(moved, true, most);
                    }}};
  }
  c.flops = 3.0 * static_cast<double>(n);
  c.bytes = 3.0 * static_cast<double>(n) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase add_bias_case(DType dtype, int64_t rows, int64_t width) {
  OpCase c{.op = "add_bias", .name = fmt::format("{} T={} N={}", name(dtype), rows, width)};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {rows, width}, Role::inout}, {"bias", DType::f32, {width}}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::add_bias(context, a[0], a[1]); };
  c.reference = [](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] += v[1][i % v[1].size()];
  };
  c.precision = Precision::rounded_once;
  c.flops = static_cast<double>(rows * width);
  c.bytes = 2.0 * static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase add_bias_backward_case(DType dtype, int64_t rows, int64_t width, bool accumulate) {
  OpCase c{.op = "add_bias_backward",
           .name = fmt::format("{} T={} N={}{}", name(dtype), rows, width, accumulate ? " accumulate" : "")};
  c.operands = {{"dbias", DType::f32, {width}, accumulate ? Role::inout : Role::output}, {"dy", dtype, {rows, width}}};
  c.run = [accumulate](ops::Context& context, const Arguments& a) {
    ops::add_bias_backward(context, a[0], a[1], accumulate);
  };
  c.reference = [accumulate, width](Values& v, Conditions& conditions) {
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0] = {.sum = absolute(v[0]), .cancels = true};
    for (size_t i = 0; i < v[1].size(); ++i) {
      v[0][i % static_cast<size_t>(width)] += v[1][i];
      conditions[0].sum[i % static_cast<size_t>(width)] += std::abs(v[1][i]);
    }
  };
  c.length = rows + 1;
  c.gradients = {{.gradient = 0, .cotangent = 1, .forward = [rows](const Values&, const std::vector<double>& at) {
                    std::vector<double> y;
                    for (int64_t t = 0; t < rows; ++t) y.insert(y.end(), at.begin(), at.end());
                    return y;
                  }}};
  c.flops = static_cast<double>(rows * width);
  c.bytes = static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
  return c;
}

// The dropout mask from Philox as the contract specifies it, one element at a time.
double dropped(double x, uint64_t row, uint64_t column, const ops::DropoutAttributes& attributes) {
  const uint32_t seed_high = static_cast<uint32_t>((attributes.seed ^ attributes.stream) >> 32);
  const auto words = Philox::block({static_cast<uint32_t>(row & 0xffffffffU), static_cast<uint32_t>(row >> 32),
                                    static_cast<uint32_t>(column >> 2), static_cast<uint32_t>(attributes.stream)},
                                   {static_cast<uint32_t>(attributes.seed), seed_high});
  const double uniform = static_cast<double>(words[column & 3U] >> 8) / 16777216.0;
  return uniform < static_cast<double>(attributes.probability)
             ? 0.0
             : x / (1.0 - static_cast<double>(attributes.probability));
}

OpCase dropout_case(DType dtype, int64_t rows, int64_t width, ops::DropoutAttributes attributes, bool in_place) {
  OpCase c{.op = "dropout", .name = fmt::format("{} T={} N={} p={}", name(dtype), rows, width, attributes.probability)};
  if (attributes.first_column > 0) c.name += fmt::format(" first={}", attributes.first_column);
  c.operands = {{"y", dtype, {rows, width}, Role::output}, {"x", dtype, {rows, width}}, {"rows", DType::i64, {rows}}};
  c.operands[0].alias = in_place ? 1 : -1;
  // Sample and position numbers of all magnitudes, which double represents exactly below 2^53.
  c.operands[2].fill = [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = static_cast<double>(random.below(uint64_t{1} << 45));
  };
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::dropout(context, a[0], a[1], a[2], attributes);
  };
  c.reference = [attributes, width](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const size_t w = static_cast<size_t>(width);
      v[0][i] = dropped(v[1][i], static_cast<uint64_t>(v[2][i / w]),
                        static_cast<uint64_t>(attributes.first_column) + i % w, attributes);
    }
  };
  c.precision = Precision::rounded_once;
  c.flops = static_cast<double>(rows * width);
  c.bytes = 2.0 * static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
  return c;
}

// Rows of experts with `counts` of them.
OpCase grouped_dropout_case(DType dtype, const std::vector<int64_t>& counts, int64_t width,
                            ops::DropoutAttributes attributes) {
  constexpr int64_t step = 3, tokens = 6;
  std::vector<double> offsets = {0};
  for (const int64_t count : counts) offsets.push_back(offsets.back() + static_cast<double>(count));
  const auto rows = static_cast<int64_t>(offsets.back());
  OpCase c = dropout_case(dtype, rows, width, attributes, false);
  c.op = "grouped_dropout";
  c.name = fmt::format("{} E={} N={} I={}", name(dtype), counts.size(), rows, width);
  c.operands[2].shape = Shape{tokens};
  c.operands.push_back({"token_of_row", DType::i32, {rows}, Role::input, integers(0, tokens - 1)});
  c.operands.push_back({"offsets", DType::i32, {std::ssize(offsets)}, Role::input, fixed(offsets)});
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::grouped_dropout(context, a[0], a[1], a[2], a[3], a[4], attributes, step);
  };
  c.reference = [=](Values& v, Conditions&) {
    const auto w = static_cast<size_t>(width);
    for (size_t e = 0; e < counts.size(); ++e) {
      ops::DropoutAttributes own = attributes;
      own.stream += e * step;
      for (auto n = static_cast<size_t>(offsets[e]); n < static_cast<size_t>(offsets[e + 1]); ++n) {
        const auto row = static_cast<uint64_t>(v[2][static_cast<size_t>(v[3][n])]);
        for (size_t j = 0; j < w; ++j) v[0][n * w + j] = dropped(v[1][n * w + j], row, j, own);
      }
    }
  };
  return c;
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t n : {0, 1, 17, 131}) cases.push_back(scale_case(to, from, n, -0.75F));
      cases.push_back(scale_case(to, from, 20000, 1.0F));
    }
  }
  for (const DType dtype : real_types) {
    for (const int64_t n : {0, 1, 3, 17, 33, 131}) cases.push_back(add_case(dtype, n, -1));
    cases.push_back(add_case(dtype, 40000, 1));
    cases.push_back(add_case(dtype, 33, 2));
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {5, 64}, {33, 131}, {0, 5}}) {
      cases.push_back(add_bias_case(dtype, rows, width));
      cases.push_back(add_bias_backward_case(dtype, rows, width, false));
      cases.push_back(add_bias_backward_case(dtype, rows, width, true));
    }
    for (const bool soft : {false, true}) {
      for (const int64_t n : {0, 1, 3, 17, 33, 131}) {
        cases.push_back(bounding_case(dtype, n, soft, 1.5F, n == 33));
        if (n > 0) cases.push_back(bounding_backward_case(dtype, n, soft, 1.5F, n == 17 ? 1 : n == 33 ? 2 : -1));
      }
      cases.push_back(bounding_case(dtype, 20000, soft, 0.01F, false));
      cases.push_back(bounding_case(dtype, 20000, soft, 50.0F, false));
      cases.push_back(bounding_backward_case(dtype, 1000, soft, 50.0F, -1));
      cases.push_back(timing(bounding_case(dtype, int64_t{1024} * 2048, soft, 1.5F, false)));
      cases.push_back(timing(bounding_backward_case(dtype, int64_t{1024} * 2048, soft, 1.5F, -1)));
    }
    const ops::DropoutAttributes tenth{.probability = 0.1F, .seed = 0x123456789abcdefULL, .stream = 7};
    const ops::DropoutAttributes most{.probability = 0.9F, .seed = 3, .stream = 0xfedcba9876543210ULL};
    const ops::DropoutAttributes never{.probability = 0.0F, .seed = 3, .stream = 1};
    for (const int64_t width : {1, 3, 17, 33, 64, 131}) {
      cases.push_back(dropout_case(dtype, 3, width, tenth, false));
      cases.push_back(dropout_case(dtype, 17, width, most, true));
    }
    cases.push_back(dropout_case(dtype, 3, 65, never, false));
    ops::DropoutAttributes later = tenth;
    later.first_column = 36;
    for (const int64_t width : {17, 64}) cases.push_back(dropout_case(dtype, 5, width, later, false));
    for (const int64_t width : {5, 64}) {
      cases.push_back(grouped_dropout_case(dtype, {3, 0, 1, 4, 0}, width, tenth));
      cases.push_back(grouped_dropout_case(dtype, {7}, width, most));
    }
    cases.push_back(timing(add_case(dtype, int64_t{1024} * 2048, -1)));
    cases.push_back(large(add_case(dtype, int64_t{1} << 27, -1)));
    cases.push_back(timing(scale_case(dtype, DType::f32, int64_t{1024} * 2048, 1.0F)));
    cases.push_back(timing(add_bias_case(dtype, 1024, 2048)));
    cases.push_back(timing(add_bias_backward_case(dtype, 1024, 2048, true)));
    cases.push_back(timing(dropout_case(dtype, 1024, 2048, tenth, false)));
    cases.push_back(timing(grouped_dropout_case(dtype, std::vector<int64_t>(64, 16), 2048, tenth)));
  }
  return cases;
}

}  // namespace ingot::ops::testing
