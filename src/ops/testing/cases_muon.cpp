#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/muon.h"
#include "ops/testing/blockwise_states.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

const char* decided_text(std::optional<bool> halted) { return !halted ? "" : *halted ? " halted" : " decided"; }

Operand decision_operand(std::optional<bool> halted) {
  Operand operand{"decision", DType::f64, {3}, Role::input, fixed({7, 0.125, halted.value_or(false) ? 1.0 : 0.0})};
  operand.absent = !halted;
  return operand;
}

OpCase momentum_case(DType type, int64_t n, std::optional<bool> halted = {}) {
  OpCase c{.op = "muon_momentum", .name = fmt::format("{} n={}{}", name(type), n, decided_text(halted))};
  c.operands = {{"update", DType::f32, {n}, Role::output},
                {"momentum", type, {n}, Role::inout, normal(0.1)},
                {"gradient", DType::f32, {n}},
                decision_operand(halted)};
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::muon_momentum(context, a[0], a[1], {}, a[2], {0.95F, 0.25F, a[3]});
  };
  c.reference = [halted](Values& v, Conditions& conditions) {
    const double share = static_cast<double>(0.95F);
    const double scale = halted ? v[3][1] : 0.25;
    for (size_t i = 0; i < v[0].size(); ++i) {
      if (halted.value_or(false)) {
        v[0][i] = 0;
        continue;
      }
      const double g = v[2][i] * scale;
      conditions[0].sum.push_back(2.0 * std::abs(g) + std::abs(v[1][i]));
      conditions[1].sum.push_back(2.0 * std::abs(v[1][i]) + std::abs(g));
      v[1][i] += (1.0 - share) * (g - v[1][i]);
      v[0][i] = g + share * (v[1][i] - g);
    }
  };
  c.flops = 6.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) * static_cast<double>(8 + 2 * size_of(type));
  return c;
}

OpCase coded_momentum_case(int64_t n, std::optional<bool> halted = {}) {
  OpCase c = with_coded_states(momentum_case(DType::f32, n, halted), {{1}}, halted.value_or(false));
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::muon_momentum(context, a[0], a[1], a[4], a[2], {0.95F, 0.25F, a[3]});
  };
  return c;
}

OpCase normalize_case(DType type, int64_t n, double squares) {
  OpCase c{.op = "muon_normalize", .name = fmt::format("{} n={} squares={}", name(type), n, squares)};
  c.operands = {{"y", type, {n}, Role::output},
                {"x", DType::f32, {n}, Role::input, normal(squares > 0 ? 1.0 : 0.0)},
                {"squares", DType::f64, {1}, Role::input, fixed({squares})}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::muon_normalize(context, a[0], a[1], a[2]); };
  c.reference = [](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] = v[1][i] * std::min(1e7, std::pow(v[2][0], -0.5));
  };
  c.flops = static_cast<double>(n);
  c.bytes = static_cast<double>(n) * static_cast<double>(4 + size_of(type));
  return c;
}

OpCase combine_case(DType y, DType x, int64_t n, int alias) {
  OpCase c{.op = "muon_combine",
           .name = fmt::format("y {} x {} n={}{}", name(y), name(x), n,
                               alias < 0    ? ""
                               : alias == 1 ? " y is x"
                                            : " y is p")};
  c.operands = {{"y", y, {n}, Role::output}, {"x", x, {n}}, {"p", DType::f32, {n}}};
  if (alias >= 0) {  // the input that y shares memory with keeps its place in the list
    c.operands[0].role = Role::input;
    c.operands[0].alias = alias;
    c.operands[static_cast<size_t>(alias)].role = Role::inout;
  }
  const size_t result = alias < 0 ? 0 : static_cast<size_t>(alias);
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::muon_combine(context, a[0], a[1], a[2], {3.4445F, -4.775F});
  };
  c.reference = [result](Values& v, Conditions& conditions) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double x = static_cast<double>(3.4445F) * v[1][i], p = static_cast<double>(4.775F) * v[2][i];
      conditions[result].sum.push_back(std::abs(x) + std::abs(p));
      v[result][i] = x - p;
    }
  };
  c.precision = Precision::rounded_once;
  c.flops = 3.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) * static_cast<double>(4 + size_of(x) + size_of(y));
  return c;
}

OpCase apply_case(DType master, bool weight, int64_t n, std::optional<bool> halted = {}) {
  OpCase c{
      .op = "muon_apply",
      .name = fmt::format("master {}{} n={}{}", name(master), weight ? " weight bf16" : "", n, decided_text(halted))};
  c.operands = {{"master", master, {n}, Role::inout},
                {"weight", DType::bf16, {n}, halted ? Role::inout : Role::output},
                {"update", DType::f32, {n}},
                decision_operand(halted)};
  c.operands[1].absent = !weight;
  if (halted.value_or(false)) c.precision = Precision::exact;
  c.run = [](ops::Context& context, const Arguments& a) {
    ops::muon_apply(context, a[0], a[1], a[2], {1e-2F, 0.1F, 6.4F, a[3]});
  };
  c.reference = [halted](Values& v, Conditions& conditions) {
    if (halted.value_or(false)) return;
    const double lr = static_cast<double>(1e-2F);
    for (size_t i = 0; i < v[0].size(); ++i) {
      conditions[0].sum.push_back(std::abs(v[0][i]) + lr * static_cast<double>(6.4F) * std::abs(v[2][i]));
      conditions[1].sum.push_back(conditions[0].sum.back());
      v[0][i] -= lr * (static_cast<double>(0.1F) * v[0][i] + static_cast<double>(6.4F) * v[2][i]);
      v[1][i] = v[0][i];
    }
  };
  c.flops = 3.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) * static_cast<double>(4 + 2 * size_of(master) + (weight ? 2 : 0));
  return c;
}

}  // namespace

std::vector<OpCase> muon_cases() {
  std::vector<OpCase> cases;
  constexpr int64_t many = int64_t{1} << 22;
  for (const int64_t n : {0, 1, 17, 131, 256, 40000}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      cases.push_back(momentum_case(type, n));
      cases.push_back(normalize_case(type, n, 2.5));
      cases.push_back(combine_case(type, type, n, -1));
      cases.push_back(combine_case(type, type, n, 1));
      cases.push_back(combine_case(DType::f32, type, n, 2));
      cases.push_back(apply_case(type, type == DType::f32, n));
    }
    cases.push_back(apply_case(DType::f32, false, n));
  }
  for (const int64_t n : {0, 1, 255, 256, 700}) cases.push_back(coded_momentum_case(n));
  cases.push_back(timing(coded_momentum_case(many)));
  cases.push_back(normalize_case(DType::f32, 131, 0));
  cases.push_back(normalize_case(DType::f32, 131, 1e-20));
  for (const bool halted : {false, true}) {
    cases.push_back(momentum_case(DType::f32, 131, halted));
    cases.push_back(coded_momentum_case(300, halted));
    cases.push_back(apply_case(DType::f32, true, 131, halted));
  }
  for (const OpCase& c : {momentum_case(DType::f32, many), normalize_case(DType::bf16, many, 2.5),
                          combine_case(DType::bf16, DType::bf16, many, -1), apply_case(DType::f32, true, many)}) {
    cases.push_back(timing(c));
  }
  return cases;
}

}  // namespace ingot::ops::testing
