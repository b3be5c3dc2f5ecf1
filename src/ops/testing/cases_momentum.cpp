#include <cmath>

#include "base/error.h"
#include "ops/momentum.h"
#include "ops/testing/blockwise_states.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Types {
  DType master, momentum;
  bool weight;
};

// `halted`: the gradient scale comes from a decision, which may also halt the update.
OpCase update_case(const char* op, Types types, int64_t n, std::optional<bool> halted) {
  OpCase c{.op = op,
           .name = fmt::format("master {} momentum {}{} n={}{}", name(types.master), name(types.momentum),
                               types.weight ? " weight bf16" : "", n,
                               !halted   ? ""
                               : *halted ? " halted"
                                         : " decided")};
  c.operands = {{"master", types.master, {n}, Role::inout},
                {"momentum", types.momentum, {n}, Role::inout, normal(0.1)},
                {"weight", DType::bf16, {n}, halted ? Role::inout : Role::output},
                {"gradient", DType::f32, {n}},
                {"decision", DType::f64, {3}, Role::input, fixed({7, 0.125, halted.value_or(false) ? 1.0 : 0.0})}};
  c.operands[2].absent = !types.weight;
  c.operands[4].absent = !halted;
  if (halted.value_or(false)) c.precision = Precision::exact;
  c.flops = 6.0 * static_cast<double>(n);
  c.bytes = static_cast<double>(n) *
            (static_cast<double>(2 * size_of(types.master) + 2 * size_of(types.momentum)) + (types.weight ? 6.0 : 4.0));
  return c;
}

OpCase sgd_case(Types types, int64_t n, ops::SgdAttributes attributes, std::optional<bool> halted = {}) {
  OpCase c = update_case("sgd", types, n, halted);
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::SgdAttributes decided = attributes;
    decided.decision = a[4];
    ops::sgd(context, {a[0], a[1], a[2]}, a[3], decided);
  };
  c.reference = [attributes, halted](Values& v, Conditions& conditions) {
    if (halted.value_or(false)) return;
    const double scale = halted ? v[4][1] : static_cast<double>(attributes.gradient_scale);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double terms = std::abs(v[1][i]) * static_cast<double>(attributes.momentum) + std::abs(v[3][i] * scale) +
                           std::abs(v[0][i]) * static_cast<double>(attributes.weight_decay);
      conditions[0].sum.push_back(std::abs(v[0][i]) + static_cast<double>(attributes.lr) * terms);
      conditions[1].sum.push_back(terms);
      conditions[2].sum.push_back(conditions[0].sum.back());
      v[1][i] = v[1][i] * static_cast<double>(attributes.momentum) + v[3][i] * scale;
      v[1][i] += v[0][i] * static_cast<double>(attributes.weight_decay);
      v[0][i] += -static_cast<double>(attributes.lr) * v[1][i];
      v[2][i] = v[0][i];
    }
  };
  return c;
}

OpCase lion_case(Types types, int64_t n, ops::LionAttributes attributes, std::optional<bool> halted = {}) {
  OpCase c = update_case("lion", types, n, halted);
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::LionAttributes decided = attributes;
    decided.decision = a[4];
    ops::lion(context, {a[0], a[1], a[2]}, a[3], decided);
  };
  c.reference = [attributes, halted](Values& v, Conditions& conditions) {
    if (halted.value_or(false)) return;
    const double scale = halted ? v[4][1] : static_cast<double>(attributes.gradient_scale);
    const double lr = static_cast<double>(attributes.lr);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double g = v[3][i] * scale;
      conditions[0].sum.push_back(std::abs(v[0][i]) + lr);
      conditions[1].sum.push_back(2.0 * std::abs(g) + std::abs(v[1][i]));
      conditions[2].sum.push_back(conditions[0].sum.back());
      const double direction = g + static_cast<double>(attributes.beta1) * (v[1][i] - g);
      v[1][i] = g + static_cast<double>(attributes.beta2) * (v[1][i] - g);
      v[0][i] -= lr * static_cast<double>(attributes.weight_decay) * v[0][i];
      v[0][i] -= lr * static_cast<double>((direction > 0) - (direction < 0));
      v[2][i] = v[0][i];
    }
  };
  return c;
}

// `update`: ops::sgd or ops::lion.
template <class Attributes>
OpCase coded_case(OpCase plain, void (*update)(ops::Context&, const ops::MomentumState&, const Tensor&, Attributes),
                  Attributes attributes, std::optional<bool> halted) {
  OpCase c = with_coded_states(std::move(plain), {{1}}, halted.value_or(false));
  c.run = [attributes, update](ops::Context& context, const Arguments& a) {
    Attributes decided = attributes;
    decided.decision = a[4];
    update(context, {a[0], a[1], a[2], a[5]}, a[3], decided);
  };
  return c;
}

template <class Make, class Attributes>
void add_cases(std::vector<OpCase>& cases, Make make,
               void (*update)(ops::Context&, const ops::MomentumState&, const Tensor&, Attributes),
               const Attributes& first, const Attributes& later) {
  const auto coded = [&](int64_t n, const Attributes& attributes, std::optional<bool> halted) {
    return coded_case(make({DType::f32, DType::f32, true}, n, attributes, halted), update, attributes, halted);
  };
  for (const int64_t n : {0, 1, 255, 256, 700}) cases.push_back(coded(n, first, {}));
  for (const bool halted : {false, true}) cases.push_back(coded(300, first, halted));
  cases.push_back(timing(coded(int64_t{1} << 22, later, {})));
  for (const Types types :
       {Types{DType::f32, DType::f32, false}, Types{DType::f32, DType::f32, true}, Types{DType::f32, DType::bf16, true},
        Types{DType::bf16, DType::f32, false}, Types{DType::bf16, DType::bf16, false}}) {
    for (const int64_t n : {0, 1, 3, 17, 131}) cases.push_back(make(types, n, first, {}));
    cases.push_back(make(types, 40000, later, {}));
    cases.push_back(timing(make(types, int64_t{1} << 22, later, {})));
  }
  for (const bool halted : {false, true}) cases.push_back(make({DType::f32, DType::f32, true}, 131, first, halted));
  cases.push_back(large(make({DType::f32, DType::f32, true}, int64_t{1} << 28, later, {})));
}

// Elements whose moment and gradient cancel: the sign of 0 is 0.
OpCase lion_zero_case() {
  OpCase c = lion_case({DType::f32, DType::f32, true}, 17, {.lr = 0.5F, .weight_decay = 0.25F});
  c.name += " zeros";
  c.operands[1].fill = c.operands[3].fill = fixed(std::vector<double>(17, 0.0));
  return c;
}

}  // namespace

std::vector<OpCase> momentum_cases() {
  std::vector<OpCase> cases;
  add_cases(cases, sgd_case, ops::sgd, ops::SgdAttributes{.lr = 1e-2F, .weight_decay = 0.1F, .gradient_scale = 0.25F},
            ops::SgdAttributes{.lr = 1e-3F, .momentum = 0.95F});
  add_cases(cases, lion_case, ops::lion,
            ops::LionAttributes{.lr = 1e-2F, .weight_decay = 0.1F, .gradient_scale = 0.25F},
            ops::LionAttributes{.lr = 1e-3F, .beta1 = 0.95F, .beta2 = 0.98F});
  cases.push_back(lion_zero_case());
  return cases;
}

}  // namespace ingot::ops::testing
