#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/moe.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  int64_t tokens, experts, chosen;
  std::string text() const { return fmt::format("T={} E={} K={}", tokens, experts, chosen); }
};

// The experts of a token: the top K of all experts sorted by descending logit.
std::vector<size_t> best_of(const double* logits, const Sizes& s) {
  std::vector<size_t> order(static_cast<size_t>(s.experts));
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  order.resize(static_cast<size_t>(s.chosen));
  return order;
}

// softmax over the logits of the experts `chosen` [T, K].
std::vector<double> weights_of(const std::vector<double>& logits, const std::vector<double>& chosen, const Sizes& s) {
  std::vector<double> weights(chosen.size());
  const auto k = static_cast<size_t>(s.chosen);
  for (size_t start = 0; start < chosen.size(); start += k) {
    double sum = 0;
    for (size_t i = start; i < start + k; ++i) {
      weights[i] = std::exp(logits[start / k * static_cast<size_t>(s.experts) + static_cast<size_t>(chosen[i])]);
      sum += weights[i];
    }
    for (size_t i = start; i < start + k; ++i) weights[i] /= sum;
  }
  return weights;
}

// K different random experts for every token.
Fill choices(Sizes s) {
  return [s](std::vector<double>& values, RandomStream& random) {
    std::vector<double> logits(static_cast<size_t>(s.experts));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t k = i % static_cast<size_t>(s.chosen);
      if (k == 0) {
        for (double& x : logits) x = random.normal();
      }
      values[i] = static_cast<double>(best_of(logits.data(), s)[k]);
    }
  };
}

// A random permutation of 0 .. N - 1.
void permutation(std::vector<double>& values, RandomStream& random) {
  std::iota(values.begin(), values.end(), 0.0);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

OpCase route_case(DType dtype, Sizes s, bool with_ties) {
  OpCase c{.op = "moe_route", .name = fmt::format("{} {}{}", name(dtype), s.text(), with_ties ? " with ties" : "")};
  c.also_f16 = true;
  c.operands = {{"experts", DType::i32, {s.tokens, s.chosen}, Role::output},
                {"weights", DType::f32, {s.tokens, s.chosen}, Role::output},
                {"logits", dtype, {s.tokens, s.experts}, Role::input, with_ties ? integers(-2, 2) : normal(2.0)}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::moe_route(context, a[0], a[1], a[2]); };
  c.reference = [s](Values& v, Conditions& conditions) {
    for (size_t t = 0; t < static_cast<size_t>(s.tokens); ++t) {
      const auto best = best_of(&v[2][t * static_cast<size_t>(s.experts)], s);
      for (size_t k = 0; k < best.size(); ++k) v[0][t * best.size() + k] = static_cast<double>(best[k]);
    }
    v[1] = weights_of(v[2], v[0], s);
    // The relative error of exp(x) is the absolute error of x, a logit minus the largest one, which is the first.
    const auto k = static_cast<size_t>(s.chosen);
    const auto below = [&](size_t i) {
      const double* row = &v[2][i / k * static_cast<size_t>(s.experts)];
      return row[static_cast<size_t>(v[0][i / k * k])] - row[static_cast<size_t>(v[0][i])];
    };
    for (size_t i = 0; i < v[1].size(); ++i) {
      double of_sum = 0;
      for (size_t j = i / k * k; j < i / k * k + k; ++j) of_sum += v[1][j] * below(j);
      conditions[1].sum.push_back(v[1][i] * (2.0 + below(i) + of_sum));
    }
  };
  c.length = s.chosen;
  c.flops = static_cast<double>(s.tokens * s.experts * s.chosen);
  c.bytes = static_cast<double>(s.tokens * s.experts) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase route_backward_case(DType dtype, Sizes s) {
  OpCase c{.op = "moe_route_backward", .name = fmt::format("{} {}", name(dtype), s.text())};
  // Logits, the experts that they select and the weights depend on each other; the op does not get the logits.
  const Drawn drawn([s] {
    RandomStream random(3, s.tokens, s.experts);
    std::vector<double> logits(static_cast<size_t>(s.tokens * s.experts));
    for (double& x : logits) x = random.normal();
    std::vector<double> experts;
    for (size_t t = 0; t < static_cast<size_t>(s.tokens); ++t) {
      for (const size_t e : best_of(&logits[t * static_cast<size_t>(s.experts)], s)) {
        experts.push_back(static_cast<double>(e));
      }
    }
    return Values{experts, weights_of(logits, experts, s), logits};
  });
  c.operands = {{"dlogits", dtype, {s.tokens, s.experts}, Role::output},
                {"dweights", DType::f32, {s.tokens, s.chosen}},
                {"experts", DType::i32, {s.tokens, s.chosen}, Role::input, drawn[0]},
                {"weights", DType::f32, {s.tokens, s.chosen}, Role::input, drawn[1]},
                {"logits", DType::f32, {s.tokens, s.experts}, Role::input, drawn[2]}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::moe_route_backward(context, a[0], a[1], a[2], a[3]); };
  // Sums over all pairs of selected experts: d w_i / d logit_j = w_i (1[i = j] - w_j).
  c.reference = [s](Values& v, Conditions& conditions) {
    const auto k = static_cast<size_t>(s.chosen);
    std::fill(v[0].begin(), v[0].end(), 0.0);
    std::vector<double>& terms = conditions[0].sum;
    terms.assign(v[0].size(), 0.0);
    conditions[0].cancels = true;
    for (size_t start = 0; start < v[3].size(); start += k) {
      for (size_t i = start; i < start + k; ++i) {
        for (size_t j = start; j < start + k; ++j) {
          const size_t at = start / k * static_cast<size_t>(s.experts) + static_cast<size_t>(v[2][j]);
          v[0][at] += v[1][i] * v[3][i] * ((i == j ? 1.0 : 0.0) - v[3][j]);
          terms[at] += 2.0 * std::abs(v[1][i] * v[3][i]) * ((i == j ? 1.0 : 0.0) + v[3][j]);
        }
      }
    }
  };
  c.length = s.chosen;
  if (s.tokens > 0) {
    c.gradients = {{.gradient = 0, .input = 4, .cotangent = 1, .forward = [s](const Values& v, const auto& at) {
                      return weights_of(at, v[2], s);
                    }}};
  }
  c.flops = static_cast<double>(s.tokens * s.chosen * 4);
  c.bytes = static_cast<double>(s.tokens * s.experts) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase group_case(Sizes s) {
  OpCase c{.op = "moe_group", .name = s.text()};
  const int64_t count = s.tokens * s.chosen;
  c.operands = {{"token_of_row", DType::i32, {count}, Role::output},
                {"row_of_choice", DType::i32, {count}, Role::output},
                {"offsets", DType::i32, {s.experts + 1}, Role::output},
                {"experts", DType::i32, {s.tokens, s.chosen}, Role::input, choices(s)}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::moe_group(context, a[0], a[1], a[2], a[3]); };
  c.reference = [s](Values& v, Conditions&) {
    std::vector<size_t> order(v[3].size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return v[3][a] < v[3][b] || (v[3][a] == v[3][b] && a < b); });
    for (size_t n = 0; n < order.size(); ++n) {
      const size_t token = order[n] / static_cast<size_t>(s.chosen);
      v[0][n] = static_cast<double>(token);
      v[1][order[n]] = static_cast<double>(n);
    }
    for (size_t e = 0; e < v[2].size(); ++e) {
      v[2][e] = static_cast<double>(
          std::count_if(v[3].begin(), v[3].end(), [&](double x) { return x < static_cast<double>(e); }));
    }
  };
  c.bytes = 3.0 * static_cast<double>(count) * sizeof(int32_t);
  return c;
}

OpCase gather_case(DType dtype, int64_t tokens, int64_t count, int64_t width) {
  OpCase c{.op = "gather_rows", .name = fmt::format("{} T={} N={} H={}", name(dtype), tokens, count, width)};
  c.also_f16 = true;
  c.operands = {{"y", dtype, {count, width}, Role::output},
                {"x", dtype, {tokens, width}},
                {"token_of_row", DType::i32, {count}, Role::input, integers(0, tokens - 1)}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::gather_rows(context, a[0], a[1], a[2]); };
  c.reference = [w = static_cast<size_t>(width)](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] = v[1][static_cast<size_t>(v[2][i / w]) * w + i % w];
  };
  c.precision = Precision::exact;
  c.bytes = 2.0 * static_cast<double>(count * width) * static_cast<double>(size_of(dtype));
  return c;
}

std::vector<double> combined(const std::vector<double>& z, const std::vector<double>& row_of_choice,
                             const std::vector<double>& weights, size_t chosen, size_t width) {
  std::vector<double> y(row_of_choice.size() / chosen * width, 0.0);
  for (size_t i = 0; i < row_of_choice.size(); ++i) {
    for (size_t j = 0; j < width; ++j) {
      y[i / chosen * width + j] += weights[i] * z[static_cast<size_t>(row_of_choice[i]) * width + j];
    }
  }
  return y;
}

OpCase combine_case(DType dtype, int64_t tokens, int64_t chosen, int64_t width, bool with_weights, bool accumulate) {
  OpCase c{.op = "combine_rows",
           .name = fmt::format("{} T={} K={} H={}{}{}", name(dtype), tokens, chosen, width,
                               with_weights ? "" : " without weights", accumulate ? " accumulate" : "")};
  const int64_t count = tokens * chosen;
  c.also_f16 = true;
  c.operands = {{"y", dtype, {tokens, width}, accumulate ? Role::inout : Role::output},
                {"z", dtype, {count, width}},
                {"row_of_choice", DType::i32, {tokens, chosen}, Role::input, permutation},
                {"weights", DType::f32, {tokens, chosen}}};
  c.operands[3].absent = !with_weights;
  c.run = [accumulate](ops::Context& context, const Arguments& a) {
    ops::combine_rows(context, a[0], a[1], a[2], a[3], accumulate);
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    const auto weights = with_weights ? v[3] : std::vector<double>(v[2].size(), 1.0);
    const auto k = static_cast<size_t>(chosen), w = static_cast<size_t>(width);
    const auto sums = combined(v[1], v[2], weights, k, w);
    conditions[0].sum = combined(absolute(v[1]), v[2], absolute(weights), k, w);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double before = accumulate ? v[0][i] : 0.0;
      v[0][i] = before + sums[i];
      conditions[0].sum[i] += std::abs(before);
    }
  };
  c.precision = Precision::rounded_once;
  c.length = chosen + 1;
  c.flops = 2.0 * static_cast<double>(count * width);
  c.bytes = static_cast<double>((count + tokens) * width) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase combine_backward_case(DType dtype, int64_t tokens, int64_t chosen, int64_t width, bool with_dweights,
                             bool in_place) {
  OpCase c{.op = "combine_rows_backward",
           .name = fmt::format("{} T={} K={} H={}{}{}", name(dtype), tokens, chosen, width,
                               with_dweights ? "" : " without dweights", in_place ? " dz is z" : "")};
  const int64_t count = tokens * chosen;
  c.operands = {{"dz", dtype, {count, width}, Role::output},
                {"dweights", DType::f32, {tokens, chosen}, Role::output},
                {"dy", dtype, {tokens, width}},
                {"z", dtype, {count, width}},
                {"row_of_choice", DType::i32, {tokens, chosen}, Role::input, permutation},
                {"weights", DType::f32, {tokens, chosen}}};
  c.operands[0].alias = in_place ? 3 : -1;
  c.operands[1].absent = c.operands[3].absent = !with_dweights;
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::combine_rows_backward(context, a[0], a[1], a[2], a[3], a[4], a[5]);
  };
  const auto k = static_cast<size_t>(chosen);
  const auto h = static_cast<size_t>(width);
  c.reference = [k, h](Values& v, Conditions& conditions) {
    conditions[1].cancels = true;
    for (size_t i = 0; i < v[4].size(); ++i) {
      const size_t row = static_cast<size_t>(v[4][i]) * h;
      v[1][i] = 0;
      double terms = 0;
      for (size_t j = 0; j < h; ++j) {
        terms += std::abs(v[2][i / k * h + j] * v[3][row + j]);
        v[1][i] += v[2][i / k * h + j] * v[3][row + j];
        v[0][row + j] = v[5][i] * v[2][i / k * h + j];
      }
      conditions[1].sum.push_back(terms);
    }
  };
  c.length = width;
  if (tokens > 0 && count * width < 2000) {
    c.gradients = {{.gradient = 0, .cotangent = 2, .forward = [k, h](const Values& v, const std::vector<double>& at) {
                      return combined(at, v[4], v[5], k, h);
                    }}};
    if (with_dweights) {
      c.gradients.push_back(
          {.gradient = 1, .cotangent = 2, .forward = [k, h](const Values& v, const std::vector<double>& at) {
             return combined(v[3], v[4], at, k, h);
           }});
    }
  }
  c.flops = 3.0 * static_cast<double>(count * width);
  c.bytes = static_cast<double>((2 * count + tokens) * width) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> moe_cases() {
  std::vector<OpCase> cases;
  for (const Sizes s : {Sizes{1, 1, 1}, {3, 8, 2}, {33, 5, 5}, {70, 64, 6}, {17, 7, 1}, {0, 4, 2}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      cases.push_back(route_case(dtype, s, false));
      cases.push_back(route_case(dtype, s, true));
      cases.push_back(route_backward_case(dtype, s));
    }
    cases.push_back(group_case(s));
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t width : {1, 17, 33, 64, 131}) {
      cases.push_back(gather_case(dtype, 7, 9, width));
      cases.push_back(combine_case(dtype, 7, 2, width, width != 33, width == 17));
      cases.push_back(combine_backward_case(dtype, 7, 2, width, width != 33, width == 131));
    }
    cases.push_back(gather_case(dtype, 3, 0, 8));
    cases.push_back(combine_case(dtype, 5, 1, 40, false, true));
    cases.push_back(combine_case(dtype, 50, 6, 1000, true, true));
    cases.push_back(combine_backward_case(dtype, 50, 6, 1000, true, false));
    cases.push_back(combine_case(dtype, 0, 2, 8, true, false));
    cases.push_back(combine_backward_case(dtype, 0, 2, 8, true, false));
    cases.push_back(timing(route_case(dtype, {4096, 64, 6}, false)));
    cases.push_back(timing(route_backward_case(dtype, {4096, 64, 6})));
    cases.push_back(timing(gather_case(dtype, 1024, 2048, 2048)));
    cases.push_back(timing(combine_case(dtype, 1024, 2, 2048, true, true)));
    cases.push_back(timing(combine_backward_case(dtype, 1024, 2, 2048, true, false)));
  }
  cases.push_back(timing(group_case({4096, 64, 6})));
  return cases;
}

}  // namespace ingot::ops::testing
