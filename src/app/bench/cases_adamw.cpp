#include "app/bench/op_table.h"
#include "base/error.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"

namespace ingot::bench {
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
  c.reference = [attributes](Values& v, std::vector<double>&) {
    const double b1 = static_cast<double>(attributes.beta1);
    const double b2 = static_cast<double>(attributes.beta2);
    const double lr = static_cast<double>(attributes.lr);
    const double eps = static_cast<double>(attributes.epsilon);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double g = v[4][i] * static_cast<double>(attributes.gradient_scale);
      v[1][i] += (1.0 - b1) * (g - v[1][i]);
      v[2][i] += (1.0 - b2) * (g * g - v[2][i]);
      const double m_hat = v[1][i] / -std::expm1(static_cast<double>(attributes.step) * std::log(b1));
      const double v_hat = v[2][i] / -std::expm1(static_cast<double>(attributes.step) * std::log(b2));
      v[0][i] -= lr * (static_cast<double>(attributes.weight_decay) * v[0][i] + m_hat / (std::sqrt(v_hat) + eps));
      v[3][i] = v[0][i];
    }
  };
  c.flops = 15.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) *
            (static_cast<double>(2 * size_of(types.master) + 4 * size_of(types.moments)) + (types.weight ? 6.0 : 4.0));
  return c;
}

OpCase sum_squares_case(int64_t n) {
  OpCase c{.op = "sum_squares", .name = fmt::format("f32 n={}", n)};
  c.operands = {{"sum", DType::f64, {1}, Role::output}, {"x", DType::f32, {n}}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::sum_squares(context, a[0], a[1]); };
  c.reference = [](Values& v, std::vector<double>&) {
    long double total = 0;
    for (const double x : v[1]) total += static_cast<long double>(x) * static_cast<long double>(x);
    v[0][0] = static_cast<double>(total);
  };
  c.scratch = [n](int) { return ops::sum_squares_bytes(n); };
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
  for (const int64_t n : {0, 1, 17, 131, 65536, 200000}) cases.push_back(sum_squares_case(n));
  cases.push_back(sum_squares_case(int64_t{1} << 23));
  cases.back().timing_only = true;
  cases.push_back(large(sum_squares_case(int64_t{1} << 28)));
  return cases;
}

}  // namespace ingot::bench
