#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ops/linear_group.h"
#include "ops/linear_group_bytes.h"
#include "ops/linear_int8_bytes.h"
#include "ops/matmul_bytes.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Layer {
  int64_t out;
  StorageType storage;
};

// The results, x, then the weights.
OpCase group_case(DType result, DType given, const std::vector<Layer>& layers, int64_t tokens, int64_t in,
                  LinearGroupAttributes attributes) {
  const bool accumulate = attributes.linear.accumulate;
  const size_t count = layers.size();
  OpCase c{.op = "linear_group"};
  std::vector<std::string> weights;
  for (const auto& [out, storage] : layers) {
    weights.push_back(fmt::format("{} {}", name(storage), out));
    c.operands.push_back(
        {fmt::format("y{}", c.operands.size()), result, {tokens, out}, accumulate ? Role::inout : Role::output});
  }
  c.name = fmt::format("{} x ({}) to {} T={} in={}{}{}{}", name(given), fmt::join(weights, ", "), name(result), tokens,
                       in, accumulate ? " accumulate" : "", attributes.linear.prefer_skinny ? " mostly few" : "",
                       attributes.int8_activations ? " int8" : "");
  c.operands.push_back({"x", given, {tokens, in}});
  for (const auto& [out, storage] : layers)
    c.operands.push_back({"weight", DType::u8, {out, in}, Role::input, normal(), storage});
  c.run = [=](ops::Context& context, const Arguments& a) {
    const std::span<const Tensor> y(a.tensors.data(), count);
    ops::linear_group(context, y, a[count], std::span<const Weight>(a.weights).subspan(count + 1), attributes);
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> x = v[count];
    if (attributes.int8_activations) {
      for (int64_t t = 0; t < tokens; ++t) round_to_int8(x.data() + t * in, in);
    }
    for (size_t layer = 0; layer < count; ++layer) {
      std::vector<double>& y = v[layer];
      std::vector<double>& terms = conditions[layer].sum;
      if (!accumulate) std::fill(y.begin(), y.end(), 0.0);
      terms = absolute(y);
      conditions[layer].cancels = true;
      const int64_t out = layers[layer].out;
      for (int64_t i = 0; i < tokens * out * in; ++i) {
        const int64_t t = i / (out * in), o = i / in % out, column = i % in;
        const double stored = v[count + 1 + layer][static_cast<size_t>(o * in + column)];
        const double w = attributes.int8_activations ? stored : rounded_to(given, stored);
        const double term = x[static_cast<size_t>(t * in + column)] * w;
        y[static_cast<size_t>(t * out + o)] += term;
        terms[static_cast<size_t>(t * out + o)] += std::abs(term);
      }
    }
  };
  c.length = in + 1;
  c.scratch = [=](int, bool host_visible) {
    size_t bytes = linear_int8_bytes(tokens, in);
    for (const Layer& layer : layers)
      bytes = std::max(bytes, linear_bytes(tokens, layer.out, in, size_of(given), true, host_visible));
    int64_t out = 0;
    for (const Layer& layer : layers) out += layer.out;
    return std::max(bytes, linear_group_bytes(tokens, out, size_of(result), host_visible));
  };
  for (const auto& [out, storage] : layers) {
    c.flops += 2.0 * static_cast<double>(tokens * out * in);
    c.bytes += static_cast<double>(static_cast<size_t>(out) * row_bytes(storage, in)) +
               static_cast<double>(tokens * out) * static_cast<double>(size_of(result));
  }
  c.bytes += static_cast<double>(tokens * in) * static_cast<double>(size_of(given));
  return c;
}

// The same with the weights one after the other in one operand.
OpCase joined_group_case(DType result, DType given, const std::vector<Layer>& layers, int64_t tokens, int64_t in) {
  OpCase c = group_case(result, given, layers, tokens, in, {.linear = {.row_invariant = true}});
  c.name += " in one matrix";
  const size_t count = layers.size(), place = count + 1;
  int64_t rows = 0;
  for (const Layer& layer : layers) rows += layer.out;
  c.operands.resize(place);
  c.operands.push_back({"weights", DType::u8, {rows, in}, Role::input, normal(), layers.front().storage});
  c.run = [=](ops::Context& context, const Arguments& a) {
    std::vector<Weight> weights;
    int64_t first = 0;
    for (const Layer& layer : layers) {
      weights.push_back(a.weights[place].slice(first, first + layer.out));
      first += layer.out;
    }
    ops::linear_group(context, {a.tensors.data(), count}, a[count], weights, {.linear = {.row_invariant = true}});
  };
  c.reference = [=, apart = c.reference](Values& v, Conditions& conditions) {
    Values own(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(place));
    auto from = v[place].begin();
    for (const Layer& layer : layers) {
      own.emplace_back(from, from + layer.out * in);
      from += layer.out * in;
    }
    apart(own, conditions);
    std::copy_n(own.begin(), count, v.begin());
  };
  return c;
}

}  // namespace

std::vector<OpCase> linear_group_cases() {
  using enum StorageType;
  constexpr LinearAttributes serving{.row_invariant = true, .prefer_skinny = true};
  constexpr LinearAttributes adding{.accumulate = true, .row_invariant = true, .prefer_skinny = true};
  std::vector<OpCase> cases;
  for (const auto& [result, given] : linear_types) {
    // Slices that have rows of two and of three weights; one weight; weights of several types.
    cases.push_back(group_case(result, given, {{150, bf16}, {3, bf16}, {47, bf16}}, 1, 96, {.linear = serving}));
    cases.push_back(group_case(result, given, {{17, f32}, {200, q4_0}}, 2, 64, {.linear = adding}));
    cases.push_back(group_case(result, given, {{90, q8_0}, {31, q8_0}, {5, fp8_e4m3}}, 5, 160, {}));
    cases.push_back(group_case(result, given, {{33, q4_k}}, 1, 256, {.linear = serving}));
    cases.push_back(group_case(result, given, {{150, bf16}, {3, q8_0}, {47, f32}}, 1, 96, {}));
    cases.push_back(group_case(result, given, {{17, q4_0}, {200, q4_0}}, 2, 64, {.linear = {.accumulate = true}}));
    // On GPUs in one launch, with blocks that have rows of one layer only in part.
    const StorageType plain = given == DType::f32 ? f32 : given == DType::bf16 ? bf16 : f16;
    cases.push_back(group_case(result, given, {{150, plain}, {3, plain}, {133, plain}}, 7, 640, {}));
    cases.push_back(group_case(result, given, {{130, plain}, {130, plain}}, 16, 96, {}));
    cases.push_back(joined_group_case(result, given, {{48, plain}, {16, plain}, {16, plain}}, 24, 64));
    cases.push_back(joined_group_case(result, given, {{33, plain}, {7, plain}}, 19, 40));
    for (const StorageType storage : {q8_0, q4_0, q4_k, q6_k}) {
      cases.push_back(group_case(result, given, {{70, storage}, {33, storage}, {150, q8_0}}, 3, 768, {}));
    }
    for (const StorageType storage : {q8_0, q4_0}) {
      cases.push_back(group_case(result, given, {{150, storage}, {3, storage}, {47, storage}}, 1, 96,
                                 {.linear = serving, .int8_activations = true}));
      cases.push_back(group_case(result, given, {{50, storage}, {70, storage}}, 6, 160,
                                 {.linear = adding, .int8_activations = true}));
    }
    cases.push_back(
        group_case(result, given, {{70, q8_0}, {60, q4_0}}, 2, 64, {.linear = serving, .int8_activations = true}));
  }
  for (const StorageType storage : {bf16, q8_0, q4_0}) {
    cases.push_back(timing(group_case(DType::bf16, DType::bf16, {{576, storage}, {192, storage}, {192, storage}}, 1,
                                      576, {.linear = serving, .int8_activations = storage != bf16})));
  }
  return cases;
}

}  // namespace ingot::ops::testing
