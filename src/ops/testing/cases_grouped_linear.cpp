#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/grouped_linear.h"
#include "ops/matmul_bytes.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// Rows of each expert, and the sizes of the experts' weights.
struct Sizes {
  std::vector<int64_t> counts;
  int64_t out, in;

  int64_t experts() const { return std::ssize(counts); }
  int64_t max_rows() const { return *std::max_element(counts.begin(), counts.end()); }
  int64_t rows() const { return offsets().back(); }
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> all = {0};
    for (const int64_t count : counts) all.push_back(all.back() + count);
    return all;
  }
  Fill fill_offsets() const {
    const std::vector<int64_t> all = offsets();
    return fixed(std::vector<double>(all.begin(), all.end()));
  }
  std::string text() const { return fmt::format("E={} N={} O={} I={}", experts(), rows(), out, in); }
};

// Whose slice of the stacked weights an expert has: its own, or, for weights that are not at one distance, another.
size_t slice_of(size_t expert, size_t experts, bool apart) {
  return apart && expert % 3 != 0 ? experts - 1 - expert : expert;
}

// y (+)= x W^T, or x W with `backward`, of the rows of each expert; `terms` likewise of the absolute values.
void multiply(const Sizes& s, bool backward, bool apart, const std::vector<double>& x,
              const std::vector<double>& weights, std::vector<double>& y, std::vector<double>* terms) {
  const auto out = static_cast<size_t>(s.out), in = static_cast<size_t>(s.in);
  const size_t width = backward ? in : out, length = backward ? out : in;
  size_t row = 0;
  for (size_t e = 0; e < s.counts.size(); ++e) {
    const double* weight = &weights[slice_of(e, s.counts.size(), apart) * out * in];
    for (int64_t i = 0; i < s.counts[e]; ++i, ++row) {
      for (size_t k = 0; k < length; ++k) {
        for (size_t j = 0; j < width; ++j) {
          const double term = x[row * length + k] * weight[backward ? k * in + j : j * in + k];
          y[row * width + j] += term;
          if (terms) (*terms)[row * width + j] += std::abs(term);
        }
      }
    }
  }
}

OpCase linear_case(bool backward, DType result, DType given, StorageType storage, const Sizes& s, bool accumulate,
                   bool row_invariant = false, bool apart = false) {
  OpCase c{.op = backward ? "grouped_linear_backward_input" : "grouped_linear",
           .name = fmt::format("{} x {} to {} {}{}{}{}", name(given), name(storage), name(result), s.text(),
                               accumulate ? " accumulate" : "", row_invariant ? " row-invariant" : "",
                               apart ? " apart" : "")};
  const int64_t width = backward ? s.in : s.out;
  const int64_t k = backward ? s.out : s.in;
  c.operands = {{backward ? "dx" : "y", result, {s.rows(), width}, accumulate ? Role::inout : Role::output},
                {backward ? "dy" : "x", given, {s.rows(), k}},
                {"weights", DType::u8, {s.experts() * s.out, s.in}, Role::input, normal(), storage},
                {"offsets", DType::i32, {s.experts() + 1}, Role::input, s.fill_offsets()}};
  const ops::GroupedLinearAttributes attributes{
      .accumulate = accumulate, .row_invariant = row_invariant, .max_rows = s.max_rows()};
  c.run = [=](ops::Context& context, const Arguments& a) {
    std::vector<Weight> weights;
    for (size_t e = 0; e < s.counts.size(); ++e) {
      const auto slice = static_cast<int64_t>(slice_of(e, s.counts.size(), apart));
      weights.push_back(a.weights[2].slice(slice * s.out, (slice + 1) * s.out));
    }
    if (backward) {
      ops::grouped_linear_backward_input(context, a[0], a[1], weights, a[3], attributes);
    } else {
      ops::grouped_linear(context, a[0], a[1], weights, a[3], attributes);
    }
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> weights = v[2];
    for (double& w : weights) w = rounded_to(given, w);
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0] = {.sum = absolute(v[0]), .cancels = true};
    multiply(s, backward, apart, v[1], weights, v[0], &conditions[0].sum);
  };
  if (backward && s.rows() * s.in < 2000) {
    c.gradients = {{.gradient = 0, .cotangent = 1, .forward = [=](const Values& v, const std::vector<double>& x) {
                      std::vector<double> weights = v[2], y(static_cast<size_t>(s.rows() * s.out), 0.0);
                      for (double& w : weights) w = rounded_to(given, w);
                      multiply(s, false, apart, x, weights, y, nullptr);
                      return y;
                    }}};
  }
  c.length = k + 1;
  c.scratch = [=](int, bool host_visible) {
    return ops::linear_bytes(s.max_rows(), s.out, s.in, size_of(given), true, host_visible);
  };
  c.flops = 2.0 * static_cast<double>(s.rows() * s.out * s.in);
  c.bytes = static_cast<double>(static_cast<size_t>(s.experts() * s.out) * row_bytes(storage, s.in)) +
            static_cast<double>(s.rows() * k) * static_cast<double>(size_of(given)) +
            static_cast<double>(s.rows() * width) * static_cast<double>(size_of(result));
  return c;
}

// An expert, and the tokens whose rows are summed, of 1000.
struct Range {
  int64_t expert, token_begin, token_end;
};

OpCase gradient_case(DType dtype, const Sizes& s, Range range, bool accumulate) {
  OpCase c{.op = "grouped_weight_gradient",
           .name = fmt::format("{} {} expert {} tokens {} to {}{}", name(dtype), s.text(), range.expert,
                               range.token_begin, range.token_end, accumulate ? " accumulate" : "")};
  std::vector<double> tokens;  // of expert e: e, e + 2, ...
  for (size_t e = 0; e < s.counts.size(); ++e) {
    for (int64_t i = 0; i < s.counts[e]; ++i) tokens.push_back(static_cast<double>(e) + 2.0 * static_cast<double>(i));
  }
  c.operands = {{"dw", DType::f32, {s.out, s.in}, accumulate ? Role::inout : Role::output},
                {"dy", dtype, {s.rows(), s.out}},
                {"x", dtype, {s.rows(), s.in}},
                {"offsets", DType::i32, {s.experts() + 1}, Role::input, s.fill_offsets()},
                {"token_of_row", DType::i32, {s.rows()}, Role::input, fixed(std::move(tokens))}};
  c.run = [=](ops::Context& context, const Arguments& a) {
    ops::grouped_weight_gradient(context, a[0], a[1], a[2], a[3], a[4],
                                 {.expert = range.expert,
                                  .token_begin = range.token_begin,
                                  .token_end = range.token_end,
                                  .batch_tokens = 1000,
                                  .accumulate = accumulate});
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0] = {.sum = absolute(v[0]), .cancels = true};
    const auto out = static_cast<size_t>(s.out), in = static_cast<size_t>(s.in);
    const auto e = static_cast<size_t>(range.expert);
    for (auto n = static_cast<size_t>(v[3][e]); n < static_cast<size_t>(v[3][e + 1]); ++n) {
      if (v[4][n] < static_cast<double>(range.token_begin) || v[4][n] >= static_cast<double>(range.token_end)) continue;
      for (size_t i = 0; i < out * in; ++i) {
        const double term = v[1][n * out + i / in] * v[2][n * in + i % in];
        v[0][i] += term;
        conditions[0].sum[i] += std::abs(term);
      }
    }
  };
  c.length = s.max_rows() + 1;
  c.flops = 2.0 * static_cast<double>(s.counts[static_cast<size_t>(range.expert)] * s.out * s.in);
  c.bytes = static_cast<double>(s.out * s.in) * 4.0 +
            static_cast<double>(s.counts[static_cast<size_t>(range.expert)] * (s.out + s.in)) *
                static_cast<double>(size_of(dtype));
  return c;
}

void add_linears(std::vector<OpCase>& cases, bool backward) {
  for (const auto& [result, given] : linear_types) {
    if (backward && given == DType::f16) continue;
    for (const StorageType storage : linear_storages) {
      const int64_t block = block_elements(storage);
      // Rows that are no multiple of 16 bytes, and rows that are; with few rows, and with more than a tile has.
      const int64_t odd = block == 1 ? 33 : block;
      const int64_t whole = block == 1 ? 40 : block == 32 ? 96 : 512;
      cases.push_back(linear_case(backward, result, given, storage, {{3, 0, 1, 2}, 35, odd}, false));
      cases.push_back(linear_case(backward, result, given, storage, {{0, 5, 16, 0, 7}, 24, whole}, true));
      cases.push_back(linear_case(backward, result, given, storage, {{0, 17, 70, 1}, 40, whole}, false, true));
    }
    const StorageType plain = given == DType::f32    ? StorageType::f32
                              : given == DType::bf16 ? StorageType::bf16
                                                     : StorageType::f16;
    cases.push_back(
        linear_case(backward, result, given, plain, {{1, 2, 0, 0, 3, 1, 9, 1, 0}, 24, 40}, false, false, true));
    cases.push_back(
        linear_case(backward, result, given, StorageType::q8_0, {{4, 0, 2, 30, 1}, 21, 64}, true, true, true));
    // More experts than a warp has lanes, most without rows; tiles of 128 rows, several of an expert.
    std::vector<int64_t> many(150, 0);
    many[0] = 2;
    many[63] = many[64] = 1;
    many[149] = 5;
    cases.push_back(linear_case(backward, result, given, plain, {many, 8, 16}, false));
    cases.push_back(linear_case(backward, result, given, plain, {{130, 0, 200}, 136, 72}, true, true));
    cases.push_back(linear_case(backward, result, given, plain, {{0, 0}, 8, 16}, false));
  }
  // A layer of Qwen3-30B-A3B: 16 decoding tokens, and a prompt of 1024.
  for (const int64_t rows : {1, 64}) {
    const Sizes layer{std::vector<int64_t>(128, rows), 768, 2048};
    cases.push_back(timing(linear_case(backward, DType::bf16, DType::bf16, StorageType::bf16, layer, false)));
  }
  // The kernels also decode fp8_e5m2.
  cases.push_back(
      linear_case(backward, DType::bf16, DType::bf16, StorageType::fp8_e5m2, {{3, 0, 1, 2}, 35, 33}, false));
}

}  // namespace

std::vector<OpCase> grouped_linear_cases() {
  std::vector<OpCase> cases;
  add_linears(cases, false);
  add_linears(cases, true);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Sizes odd{{5, 0, 40, 3}, 35, 33}, whole{{5, 0, 70, 3}, 40, 72}, wide{{200, 9}, 264, 136};
    for (const Sizes& s : {Sizes{{0, 0}, 35, 33}, Sizes{{0, 0}, 40, 72}}) {
      cases.push_back(gradient_case(dtype, s, {1, 0, 1000}, false));
      cases.push_back(gradient_case(dtype, s, {1, 0, 1000}, true));
    }
    for (const Sizes& s : {odd, whole, wide}) {
      cases.push_back(gradient_case(dtype, s, {0, 0, 1000}, false));
      cases.push_back(gradient_case(dtype, s, {0, 3, 7}, true));
    }
    for (const Sizes& s : {odd, whole}) {
      cases.push_back(gradient_case(dtype, s, {1, 0, 1000}, false));  // no rows
      cases.push_back(gradient_case(dtype, s, {1, 0, 1000}, true));
      cases.push_back(gradient_case(dtype, s, {2, 4, 71}, false));
      cases.push_back(gradient_case(dtype, s, {3, 8, 9}, false));  // no row of these tokens
      cases.push_back(gradient_case(dtype, s, {3, 3, 6}, true));
    }
    cases.push_back(timing(gradient_case(dtype, {std::vector<int64_t>(128, 64), 768, 2048}, {5, 0, 1000}, false)));
  }
  return cases;
}

}  // namespace ingot::ops::testing
