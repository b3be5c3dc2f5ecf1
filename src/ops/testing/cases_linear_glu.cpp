#include <algorithm>
#include <cmath>

#include "ops/linear_glu.h"
#include "ops/linear_int8_bytes.h"
#include "ops/matmul_bytes.h"
#include "ops/testing/activations.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

OpCase linear_glu_case(Activation activation, DType dtype, StorageType gate, StorageType up, int64_t tokens,
                       int64_t features, int64_t in, LinearGroupAttributes group) {
  OpCase c{.op = "linear_glu",
           .name = fmt::format("{} {} x ({}, {}) T={} F={} in={}{}{}", name(activation), name(dtype), name(gate),
                               name(up), tokens, features, in, group.linear.prefer_skinny ? " mostly few" : "",
                               group.int8_activations ? " int8" : "")};
  c.operands = {{"y", dtype, {tokens, features}, Role::output},
                {"x", dtype, {tokens, in}, Role::input, normal(0.1)},  // so that f16 does not overflow
                {"gate", DType::u8, {features, in}, Role::input, normal(0.3), gate},
                {"up", DType::u8, {features, in}, Role::input, normal(0.3), up}};
  c.run = [=](ops::Context& context, const Arguments& a) {
    const Arena::Scope scope(context.scratch);
    const Shape shape{tokens, features};
    const GatedLinears layers{a.weights[2], a.weights[3], context.scratch.allocate(dtype, shape),
                              context.scratch.allocate(dtype, shape)};
    ops::linear_glu(context, a[0], a[1], layers, {group, activation});
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> x = v[1];
    if (group.int8_activations) {
      for (int64_t t = 0; t < tokens; ++t) round_to_int8(x.data() + t * in, in);
    }
    // The sum of a layer's terms for one element, and that of their absolute values.
    const auto sums = [&](const std::vector<double>& weight, int64_t t, int64_t f) {
      double sum = 0, terms = 0;
      for (int64_t i = 0; i < in; ++i) {
        const double stored = weight[static_cast<size_t>(f * in + i)];
        const double w = group.int8_activations ? stored : rounded_to(dtype, stored);
        sum += x[static_cast<size_t>(t * in + i)] * w;
        terms += std::abs(x[static_cast<size_t>(t * in + i)] * w);
      }
      return std::pair(sum, terms);
    };
    conditions[0] = {.sum = v[0], .narrow = v[0], .cancels = true};
    for (int64_t at = 0; at < tokens * features; ++at) {
      const auto i = static_cast<size_t>(at);
      const auto [g, g_terms] = sums(v[2], at / features, at % features);
      const auto [u, u_terms] = sums(v[3], at / features, at % features);
      v[0][i] = activated(activation, g) * u;
      // How the result follows each layer's, whose terms are summed in fp32 and which is rounded to 16 bits.
      const double by_gate = std::abs(u) * activation_slope_condition(activation, g);
      const double by_up = std::abs(activated(activation, g));
      conditions[0].sum[i] = by_gate * g_terms + by_up * u_terms + activated_condition(activation, g) * std::abs(u);
      conditions[0].narrow[i] = by_gate * std::abs(g) + by_up * std::abs(u);
    }
  };
  c.length = in + 1;
  c.scratch = [=](int, bool host_visible) {
    size_t bytes = linear_int8_bytes(tokens, in);
    bytes = std::max(bytes, linear_bytes(tokens, features, in, size_of(dtype), true, host_visible));
    return bytes + 2 * Arena::footprint(dtype, Shape{tokens, features});
  };
  c.flops = 4.0 * static_cast<double>(tokens * features * in);
  c.bytes = static_cast<double>(static_cast<size_t>(features) * (row_bytes(gate, in) + row_bytes(up, in))) +
            static_cast<double>(tokens * (in + features)) * static_cast<double>(size_of(dtype));
  return c;
}

// The same with both weights one after the other in one operand; `tokens` x `features` elements fill whole units of the
// arena, so that the memory of both layers has no gap either.
OpCase joined_linear_glu_case(Activation activation, DType dtype, StorageType storage, int64_t tokens, int64_t features,
                              int64_t in) {
  const LinearGroupAttributes group{.linear = {.row_invariant = true}};
  OpCase c = linear_glu_case(activation, dtype, storage, storage, tokens, features, in, group);
  c.name += " in one matrix";
  c.operands.resize(2);
  c.operands.push_back({"weights", DType::u8, {2 * features, in}, Role::input, normal(0.3), storage});
  c.run = [=, apart = c.run](ops::Context& context, const Arguments& a) {
    Arguments own = a;
    own.weights = {{}, {}, a.weights[2].slice(0, features), a.weights[2].slice(features, 2 * features)};
    apart(context, own);
  };
  c.reference = [=, apart = c.reference](Values& v, Conditions& conditions) {
    const auto middle = v[2].begin() + features * in;
    Values own = {v[0], v[1], {v[2].begin(), middle}, {middle, v[2].end()}};
    apart(own, conditions);
    v[0] = own[0];
  };
  return c;
}

}  // namespace

std::vector<OpCase> linear_glu_cases() {
  using enum StorageType;
  constexpr LinearAttributes serving{.row_invariant = true, .prefer_skinny = true};
  std::vector<OpCase> cases;
  for (const auto& [dtype, plain] :
       {std::pair(DType::f32, f32), std::pair(DType::bf16, bf16), std::pair(DType::f16, f16)}) {
    for (const Activation activation : every_activation) {
      cases.push_back(linear_glu_case(activation, dtype, plain, plain, 7, 133, 640, {}));
      cases.push_back(linear_glu_case(activation, dtype, plain, plain, 2, 40, 96, {.linear = serving}));
      cases.push_back(joined_linear_glu_case(activation, dtype, plain, 24, 40, 64));
    }
    for (const StorageType storage : {q8_0, q4_0, q4_k, q6_k})
      cases.push_back(linear_glu_case(Activation::silu, dtype, storage, storage, 16, 33, 768, {}));
    cases.push_back(linear_glu_case(Activation::silu, dtype, q4_k, q6_k, 3, 40, 512, {}));
    cases.push_back(linear_glu_case(Activation::silu, dtype, plain, plain, 40, 24, 64, {}));
    cases.push_back(linear_glu_case(Activation::silu, dtype, plain, plain, 0, 24, 64, {}));
    cases.push_back(
        linear_glu_case(Activation::silu, dtype, q8_0, q8_0, 2, 40, 96, {.linear = serving, .int8_activations = true}));
  }
  for (const StorageType storage : {bf16, q8_0, q4_0})
    cases.push_back(
        timing(linear_glu_case(Activation::silu, DType::bf16, storage, storage, 1, 1536, 576, {.linear = serving})));
  return cases;
}

}  // namespace ingot::ops::testing
