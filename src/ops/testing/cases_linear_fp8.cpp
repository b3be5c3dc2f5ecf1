#include "ops/linear_fp8.h"
#include "ops/linear_fp8_bytes.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"
#include "tensor/arena.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  int64_t tokens, out, in;
};

struct Format {
  int mantissa_bits;
  int least_exponent;  // minimum exponent of normal values
  double largest;
};
constexpr Format e4m3{3, -6, 448};
constexpr Format e5m2{2, -14, 57344};
Format format_of(StorageType storage) { return storage == StorageType::fp8_e4m3 ? e4m3 : e5m2; }

double rounded(const Format& f, double value) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), f.least_exponent);
  const double unit = std::ldexp(1.0, exponent - f.mantissa_bits);
  return std::nearbyint(value / unit) * unit;
}

double scale_of(const Format& f, const double* row, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(row[i]));
  if (most == 0) return 1;
  int exponent = -110;
  while (rounded(f, std::ldexp(most, -exponent)) > f.largest) ++exponent;
  return std::ldexp(1.0, exponent);
}

// Rows of n elements rounded to fp8; `scales` receives one scale per row.
std::vector<double> in_fp8(const Format& f, std::vector<double> values, int64_t n, std::vector<double>* scales) {
  for (size_t begin = 0; begin < values.size(); begin += static_cast<size_t>(n)) {
    const double scale = scale_of(f, values.data() + begin, n);
    for (size_t i = begin; i < begin + static_cast<size_t>(n); ++i) values[i] = rounded(f, values[i] / scale) * scale;
    if (scales != nullptr) scales->push_back(scale);
  }
  return values;
}

// Multiplies or divides column k of `values` [.., n] by scales[k].
void multiply_columns(std::vector<double>& values, const std::vector<double>& scales, bool divide) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double scale = scales[i % scales.size()];
    values[i] = divide ? values[i] / scale : values[i] * scale;
  }
}

// Magnitudes over many binades, so that some elements become subnormal and some zero; every fifth row is zero.
Fill spread(int64_t width) {
  return [width](std::vector<double>& values, RandomStream& random) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = random.normal() * std::exp2(-20.0 * std::pow(random.uniform(), 4.0));
      if (i / static_cast<size_t>(width) % 5 == 3) values[i] = 0;
    }
  };
}

// `gradients`: the type to which dy is rounded, for backward.
OpCase linear_case(bool backward, DType result, DType given, StorageType storage, Sizes s, bool accumulate,
                   StorageType gradients = StorageType::fp8_e4m3) {
  OpCase c{.op = backward ? "linear_fp8_backward_input" : "linear_fp8",
           .name = fmt::format("{}{} x {} to {} T={} out={} in={}{}", name(given),
                               gradients == StorageType::fp8_e5m2 ? " by e5m2" : "", name(storage), name(result),
                               s.tokens, s.out, s.in, accumulate ? " accumulate" : "")};
  const int64_t width = backward ? s.in : s.out;
  const int64_t k = backward ? s.out : s.in;
  c.operands = {{backward ? "dx" : "y", result, {s.tokens, width}, accumulate ? Role::inout : Role::output},
                {backward ? "dy" : "x", given, {s.tokens, k}, Role::input, spread(k)},
                {"weight", DType::u8, {s.out, s.in}, Role::input, spread(s.in), storage}};
  c.run = [=](ops::Context& context, const Arguments& a) {
    const ops::LinearAttributes attributes{.accumulate = accumulate};
    if (backward) {
      ops::linear_fp8_backward_input(context, a[0], a[1], a.weights[2], gradients, attributes);
    } else {
      ops::linear_fp8(context, a[0], a[1], a.weights[2], attributes);
    }
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> scales;
    const std::vector<double> weight = in_fp8(e4m3, v[2], s.in, &scales);  // fp8 weights are unchanged
    std::vector<double> left = v[1];
    if (backward) {
      multiply_columns(left, scales, false);
      left = in_fp8(format_of(gradients), left, k, nullptr);
      multiply_columns(left, scales, true);
    } else {
      left = in_fp8(e4m3, left, k, nullptr);
    }
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    std::vector<double>& terms = conditions[0].sum;
    terms = absolute(v[0]);
    conditions[0].cancels = true;
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t o = 0; o < s.out; ++o) {
        for (int64_t i = 0; i < s.in; ++i) {
          const double w = weight[static_cast<size_t>(o * s.in + i)];
          const auto to = static_cast<size_t>(t * width + (backward ? i : o));
          const double term = left[static_cast<size_t>(t * k + (backward ? o : i))] * w;
          v[0][to] += term;
          terms[to] += std::abs(term);
        }
      }
    }
    // For bf16 results sums may be kept to 14 bits (ops/linear_fp8.h): 2^-14 of the terms.
    if (result != DType::bf16) return;
    for (const double of_sum : terms) conditions[0].narrow.push_back(0x1p-6 * of_sum);
  };
  c.length = k + 1;
  c.scratch = [=](int, bool host_visible) {
    return ops::linear_fp8_bytes(s.tokens, s.out, s.in, !is_fp8(storage), host_visible);
  };
  c.flops = 2.0 * static_cast<double>(s.tokens * s.out * s.in);
  c.bytes = static_cast<double>(static_cast<size_t>(s.out) * row_bytes(storage, s.in)) +
            static_cast<double>(s.tokens * k) * static_cast<double>(size_of(given)) +
            static_cast<double>(s.tokens * width) * static_cast<double>(size_of(result));
  return c;
}

// With a dy that is exact in fp8, the result is the gradient of x fp8(W)^T.
OpCase gradient_case(DType dtype, StorageType storage, Sizes s) {
  OpCase c = linear_case(true, dtype, dtype, storage, s, false);
  c.name += " exact dy";
  c.operands[1].fill = integers(-3, 3);
  c.operands[2].fill = normal();
  c.gradients = {{.gradient = 0, .cotangent = 1, .forward = [=](const Values& v, const std::vector<double>& x) {
                    const std::vector<double> weight = in_fp8(e4m3, v[2], s.in, nullptr);
                    std::vector<double> y(static_cast<size_t>(s.tokens * s.out), 0.0);
                    for (size_t t = 0; t < static_cast<size_t>(s.tokens); ++t) {
                      for (size_t o = 0; o < static_cast<size_t>(s.out); ++o) {
                        for (size_t i = 0; i < static_cast<size_t>(s.in); ++i) {
                          y[t * static_cast<size_t>(s.out) + o] +=
                              x[t * static_cast<size_t>(s.in) + i] * weight[o * static_cast<size_t>(s.in) + i];
                        }
                      }
                    }
                    return y;
                  }}};
  return c;
}

size_t fp8_bytes(int64_t rows, int64_t width) {
  return Arena::footprint(static_cast<size_t>(rows) * row_bytes(StorageType::fp8_e4m3, width));
}

// Quantises and dequantises. `folded`: columns are multiplied by the scales of another matrix's rows.
OpCase quantize_case(DType dtype, StorageType storage, int64_t rows, int64_t width, bool folded) {
  OpCase c{.op = "quantize_fp8",
           .name = fmt::format("{} to {} [{}, {}]{}", name(dtype), name(storage), rows, width, folded ? " by" : "")};
  c.operands = {{"back", dtype, {rows, width}, Role::output},
                {"x", dtype, {rows, width}, Role::input, spread(width)},
                {"by", DType::u8, {width, 3}, Role::input, normal(), StorageType::fp8_e4m3}};
  c.run = [=](ops::Context& context, const Arguments& a) {
    const Arena::Scope scope(context.scratch);
    const Weight q{storage, context.scratch.allocate_bytes(static_cast<size_t>(rows) * row_bytes(storage, width)), rows,
                   width, &context.device};
    ops::quantize_fp8(context, q, a[1], folded ? a.weights[2] : Weight{});
    ops::dequantize_fp8(context, a[0], q, folded ? a.weights[2] : Weight{});
  };
  c.reference = [=](Values& v, Conditions&) {
    std::vector<double> scales;
    in_fp8(e4m3, v[2], 3, &scales);
    if (!folded) scales.assign(static_cast<size_t>(width), 1.0);
    v[0] = v[1];
    multiply_columns(v[0], scales, false);
    v[0] = in_fp8(format_of(storage), v[0], width, nullptr);
    multiply_columns(v[0], scales, true);
  };
  c.precision = Precision::exact;
  c.scratch = [=](int, bool) { return fp8_bytes(rows, width); };
  c.bytes = static_cast<double>(rows * width) * static_cast<double>(2 * size_of(dtype) + 2);
  return c;
}

OpCase scales_case(StorageType storage, int64_t rows, int64_t width) {
  OpCase c{.op = "fp8_scales", .name = fmt::format("{} [{}, {}]", name(storage), rows, width)};
  c.operands = {{"scales", DType::f32, {rows}, Role::output},
                {"q", DType::u8, {rows, width}, Role::input, spread(width), storage}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::fp8_scales(context, a[0], a.weights[1]); };
  c.reference = [=](Values& v, Conditions&) {
    std::vector<double> scales;
    in_fp8(format_of(storage), v[1], width, &scales);
    v[0] = scales;
  };
  c.precision = Precision::exact;
  c.bytes = static_cast<double>(rows) * 36;  // at least 32 bytes are read together
  return c;
}

OpCase dequantize_case(DType dtype, StorageType storage, int64_t rows, int64_t width) {
  OpCase c{.op = "dequantize_fp8", .name = fmt::format("{} to {} [{}, {}]", name(storage), name(dtype), rows, width)};
  c.operands = {{"x", dtype, {rows, width}, Role::output},
                {"q", DType::u8, {rows, width}, Role::input, spread(width), storage}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::dequantize_fp8(context, a[0], a.weights[1], {}); };
  c.reference = [](Values& v, Conditions&) { v[0] = v[1]; };
  c.precision = Precision::exact;
  c.bytes = static_cast<double>(rows * width) * static_cast<double>(size_of(dtype) + 1);
  return c;
}

}  // namespace

std::vector<OpCase> linear_fp8_cases() {
  std::vector<OpCase> cases;
  constexpr std::pair<DType, DType> types[] = {
      {DType::f32, DType::f32}, {DType::f32, DType::bf16}, {DType::bf16, DType::bf16}};
  for (const bool backward : {false, true}) {
    for (const auto& [result, given] : types) {
      for (const StorageType storage : {StorageType::fp8_e4m3, StorageType::bf16, StorageType::f32}) {
        cases.push_back(linear_case(backward, result, given, storage, {1, 1, 1}, false));
        cases.push_back(linear_case(backward, result, given, storage, {3, 35, 33}, true));
        cases.push_back(linear_case(backward, result, given, storage, {17, 48, 64}, false));
      }
      cases.push_back(linear_case(backward, result, given, StorageType::fp8_e4m3, {0, 3, 5}, false));
      if (backward) continue;
      for (const Sizes& s : {Sizes{3, 35, 33}, Sizes{17, 48, 64}}) {
        cases.push_back(with_residual(linear_case(false, result, given, StorageType::fp8_e4m3, s, true),
                                      [](ops::Context& context, const Arguments& a, const Tensor& residual) {
                                        ops::linear_fp8(context, a[0], a[1], a.weights[2], {.residual = residual});
                                      }));
      }
    }
    cases.push_back(linear_case(backward, DType::bf16, DType::bf16, StorageType::fp8_e4m3, {150, 144, 160}, true));
    for (const StorageType storage : {StorageType::fp8_e4m3, StorageType::bf16}) {
      cases.push_back(timing(linear_case(backward, DType::bf16, DType::bf16, storage, {1024, 1536, 576}, false)));
      cases.push_back(timing(linear_case(backward, DType::bf16, DType::bf16, storage, {8192, 8192, 8192}, false)));
    }
  }
  for (const StorageType storage : {StorageType::fp8_e4m3, StorageType::f32, StorageType::bf16}) {
    const DType dtype = storage == StorageType::f32 ? DType::f32 : DType::bf16;
    cases.push_back(linear_case(true, dtype, dtype, storage, {17, 48, 64}, false, StorageType::fp8_e5m2));
    cases.push_back(linear_case(true, dtype, dtype, storage, {3, 35, 33}, true, StorageType::fp8_e5m2));
  }
  cases.push_back(
      linear_case(true, DType::bf16, DType::bf16, StorageType::fp8_e4m3, {150, 144, 160}, true, StorageType::fp8_e5m2));
  cases.push_back(scales_case(StorageType::fp8_e4m3, 300, 33));
  cases.push_back(scales_case(StorageType::fp8_e5m2, 7, 16));
  cases.push_back(timing(scales_case(StorageType::fp8_e4m3, 28672, 8192)));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const StorageType storage : {StorageType::fp8_e4m3, StorageType::bf16}) {
      cases.push_back(gradient_case(dtype, storage, {3, 11, 17}));
    }
    for (const StorageType storage : {StorageType::fp8_e4m3, StorageType::fp8_e5m2}) {
      for (const bool folded : {false, true}) {
        cases.push_back(quantize_case(dtype, storage, 7, 1, folded));
        cases.push_back(quantize_case(dtype, storage, 5, 131, folded));
        cases.push_back(quantize_case(dtype, storage, 6, 544, folded));
      }
      cases.push_back(dequantize_case(dtype, storage, 3, 33));
      cases.push_back(dequantize_case(dtype, storage, 4, 1040));
      cases.push_back(timing(dequantize_case(dtype, storage, 4096, 4096)));
    }
    cases.push_back(timing(quantize_case(dtype, StorageType::fp8_e4m3, 8192, 8192, false)));
    cases.push_back(timing(quantize_case(dtype, StorageType::fp8_e5m2, 8192, 8192, true)));
  }
  return cases;
}

}  // namespace ingot::ops::testing
