#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"
#include "ops/testing/blockwise_states.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Types {
  DType master, moments;
  bool weight;
};

OpCase adamw_case(Types types, int64_t n, ops::AdamwAttributes attributes) {
  OpCase c{.op = "adamw",
           .name = fmt::format("master {} moments {}{} n={} step={}", name(types.master), name(types.moments),
                               types.weight ? " weight bf16" : "", n, attributes.step)};
  const Fill positive = [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = 0.01 * random.uniform_double();
  };
  c.operands = {{"master", types.master, {n}, Role::inout},
                {"moment1", types.moments, {n}, Role::inout, normal(0.1)},
                {"moment2", types.moments, {n}, Role::inout, positive},
                {"weight", DType::bf16, {n}, Role::output},
                {"gradient", DType::f32, {n}}};
  c.operands[3].absent = !types.weight;
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::adamw(context, {a[0], a[1], a[2], a[3]}, a[4], attributes);
  };
  c.reference = [attributes](Values& v, Conditions& conditions) {
    const double b1 = static_cast<double>(attributes.beta1);
    const double b2 = static_cast<double>(attributes.beta2);
    const double lr = static_cast<double>(attributes.lr);
    const double eps = static_cast<double>(attributes.epsilon);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double g = v[4][i] * static_cast<double>(attributes.gradient_scale);
      const double first_terms = b1 * std::abs(v[1][i]) + (1.0 - b1) * std::abs(g);
      v[1][i] += (1.0 - b1) * (g - v[1][i]);
      v[2][i] += (1.0 - b2) * (g * g - v[2][i]);
      const double m_hat = v[1][i] / -std::expm1(static_cast<double>(attributes.step) * std::log(b1));
      const double v_hat = v[2][i] / -std::expm1(static_cast<double>(attributes.step) * std::log(b2));
      const double per_moment = lr * m_hat / (v[1][i] * (std::sqrt(v_hat) + eps));
      const double before = std::abs(v[0][i]);
      v[0][i] -= lr * (static_cast<double>(attributes.weight_decay) * v[0][i] + m_hat / (std::sqrt(v_hat) + eps));
      v[3][i] = v[0][i];
      // The step is a few products and quotients of the moment, each of which rounds once.
      conditions[0].sum.push_back(before + per_moment * (first_terms + 2.0 * std::abs(v[1][i])));
      conditions[1].sum.push_back(first_terms);
      conditions[3].sum.push_back(conditions[0].sum.back());
    }
  };
  c.flops = 15.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) *
            (static_cast<double>(2 * size_of(types.master) + 4 * size_of(types.moments)) + (types.weight ? 6.0 : 4.0));
  return c;
}

// With the gradient scale of a `decision` tensor, which may also halt the update.
OpCase decided_case(int64_t n, bool halted, ops::AdamwAttributes attributes) {
  OpCase c = adamw_case({DType::f32, DType::f32, true}, n, attributes);
  c.name += halted ? " halted" : " decided";
  c.operands.push_back({"decision", DType::f64, {3}, Role::input, fixed({7, 0.125, halted ? 1.0 : 0.0})});
  c.operands[3].role = Role::inout;
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::AdamwAttributes decided = attributes;
    decided.gradient_scale = 1000;
    decided.decision = a[5];
    ops::adamw(context, {a[0], a[1], a[2], a[3]}, a[4], decided);
  };
  if (halted) {
    c.reference = [](Values&, Conditions&) {};
    c.precision = Precision::exact;
  }
  return c;
}

// With 8-bit moments; with `halted`, one of decided_case.
OpCase coded_case(int64_t n, ops::AdamwAttributes attributes, std::optional<bool> halted = {}) {
  OpCase c = with_coded_states(
      halted ? decided_case(n, *halted, attributes) : adamw_case({DType::f32, DType::f32, true}, n, attributes),
      {{1}, {2, false, 0.01}}, halted.value_or(false));
  c.run = [attributes, scales = c.operands.size() - 2, decided = halted.has_value()](ops::Context& context,
                                                                                     const Arguments& a) {
    ops::AdamwAttributes with_decision = attributes;
    if (decided) with_decision.decision = a[5];
    ops::adamw(context, {a[0], a[1], a[2], a[3], a[scales], a[scales + 1]}, a[4], with_decision);
  };
  return c;
}

OpCase decide_case(int64_t n, ops::DecisionAttributes attributes, double halted, double loss) {
  OpCase c{.op = "decide_update",
           .name = fmt::format("n={} clip={} halted={} loss={}", n, attributes.max_norm, halted, loss)};
  const Fill positive = [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = 100 * random.uniform_double();
  };
  c.operands = {{"decision", DType::f64, {3}, Role::inout, fixed({-1, -1, halted})},
                {"squares", DType::f64, {n}, Role::input, positive},
                {"loss_squares", DType::f64, {1}, Role::input, fixed({loss})}};
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::decide_update(context, a[0], a[1], a[2], attributes);
  };
  c.reference = [attributes](Values& v, Conditions&) {
    long double total = 0;
    for (const double x : v[1]) total += static_cast<long double>(x);
    const auto norm = static_cast<double>(std::sqrt(total)) / attributes.loss_tokens;
    v[0][0] = norm;
    v[0][1] = 1 / attributes.loss_tokens;
    if (attributes.max_norm > 0 && norm + 1e-6 > attributes.max_norm) v[0][1] *= attributes.max_norm / (norm + 1e-6);
    if (!std::isfinite(v[2][0])) v[0][2] = 1;
  };
  c.length = n;
  c.flops = static_cast<double>(n);
  c.bytes = 8.0 * static_cast<double>(n);
  return c;
}

OpCase sum_squares_case(int64_t n, bool accumulate = false) {
  OpCase c{.op = "sum_squares", .name = fmt::format("f32 n={}{}", n, accumulate ? " added" : "")};
  c.operands = {{"sum", DType::f64, {1}, accumulate ? Role::inout : Role::output}, {"x", DType::f32, {n}}};
  c.run = [accumulate](ops::Context& context, const Arguments& a) {
    ops::sum_squares(context, a[0], a[1], accumulate);
  };
  c.reference = [accumulate](Values& v, Conditions& conditions) {
    const double before = accumulate ? v[0][0] : 0;
    long double total = before;
    for (const double x : v[1]) total += static_cast<long double>(x) * static_cast<long double>(x);
    v[0][0] = static_cast<double>(total);
    conditions[0].sum = {std::abs(before) + std::abs(v[0][0] - before)};
  };
  c.length = n + 1;
  c.scratch = [n](int, bool) { return ops::sum_squares_bytes(n); };
  c.flops = 2.0 * static_cast<double>(n);
  c.bytes = 4.0 * static_cast<double>(n);
  return c;
}

}  // namespace

std::vector<OpCase> adamw_cases() {
  std::vector<OpCase> cases;
  const ops::AdamwAttributes first{.lr = 1e-2F, .weight_decay = 0.1F, .gradient_scale = 0.25F, .step = 1};
  const ops::AdamwAttributes later{.lr = 1e-3F, .beta1 = 0.8F, .beta2 = 0.999F, .epsilon = 1e-6F, .step = 1000};
  for (const Types types :
       {Types{DType::f32, DType::f32, false}, Types{DType::f32, DType::f32, true}, Types{DType::f32, DType::bf16, true},
        Types{DType::bf16, DType::f32, false}, Types{DType::bf16, DType::bf16, false}}) {
    for (const int64_t n : {0, 1, 3, 17, 131}) cases.push_back(adamw_case(types, n, first));
    cases.push_back(adamw_case(types, 40000, later));
    cases.push_back(adamw_case(types, int64_t{1} << 22, later));
    cases.back().timing_only = true;
  }
  for (const Types types : {Types{DType::bf16, DType::bf16, false}, Types{DType::f32, DType::f32, true}}) {
    cases.push_back(large(adamw_case(types, int64_t{1} << 28, later)));
  }
  for (const int64_t n : {0, 1, 255, 256, 700}) cases.push_back(coded_case(n, first));
  cases.push_back(coded_case(700, later));
  cases.back().name += " spread";
  cases.back().operands[4].fill = spread();
  for (const bool halted : {false, true})
    cases.push_back(coded_case(300, {.lr = 1e-2F, .gradient_scale = 0.125F}, halted));
  cases.push_back(timing(coded_case(int64_t{1} << 22, later)));
  cases.push_back(large(coded_case(int64_t{1} << 28, later)));
  for (const int64_t n : {0, 1, 17, 131, 65536, 200000}) cases.push_back(sum_squares_case(n));
  cases.push_back(sum_squares_case(131, true));
  for (const bool halted : {false, true})
    cases.push_back(decided_case(131, halted, {.lr = 1e-2F, .gradient_scale = 0.125F}));
  for (const int64_t n : {1, 300}) {
    cases.push_back(decide_case(n, {.loss_tokens = 3}, 0, 1));
    cases.push_back(decide_case(n, {.loss_tokens = 3, .max_norm = 0.5}, 0, 1));
    cases.push_back(decide_case(n, {.loss_tokens = 3, .max_norm = 1000}, 1, 1));
  }
  cases.push_back(decide_case(1, {}, 0, std::numeric_limits<double>::infinity()));
  cases.push_back(decide_case(1, {}, 0, std::numeric_limits<double>::quiet_NaN()));
  cases.push_back(decide_case(300, {.loss_tokens = 3, .max_norm = 0.5}, 0, 1));
  cases.back().timing_only = true;
  cases.push_back(sum_squares_case(int64_t{1} << 23));
  cases.back().timing_only = true;
  cases.push_back(large(sum_squares_case(int64_t{1} << 28)));
  return cases;
}

}  // namespace ingot::ops::testing
