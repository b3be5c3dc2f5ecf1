#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/lora.h"
#include "ops/lora_bytes.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  DType dtype;
  int64_t tokens, in, out;
  std::vector<int64_t> ranks;  // ranks of the adapters; 0: the adapter does not cover the layer
  bool wide = false;           // y is f32
};

enum Place : size_t { y, x, slots, first };  // followed by a and b of every adapter

// Number of layers in the entry table, and the layer under test.
constexpr int64_t layers = 3, the_layer = 1;

float factor_of(size_t adapter) { return 0.5F + 0.25F * static_cast<float>(adapter); }

OpCase lora_case(const Sizes& s) {
  const int64_t most = std::max<int64_t>(1, *std::max_element(s.ranks.begin(), s.ranks.end()));
  OpCase c{.op = "lora",
           .name = fmt::format(
               "{}{} T={} I={} O={} ranks={}", name(s.dtype), s.wide ? "/f32" : "", s.tokens, s.in, s.out,
               fmt::join(s.ranks.begin(), s.ranks.begin() + std::min<int64_t>(4, std::ssize(s.ranks)), ","))};
  c.operands = {{"y", s.wide ? DType::f32 : s.dtype, {s.tokens, s.out}, Role::inout},
                {"x", s.dtype, {s.tokens, s.in}, Role::input},
                {"slots", DType::i32, {s.tokens}, Role::input, integers(-1, std::ssize(s.ranks) - 1)}};
  for (const int64_t rank : s.ranks) {
    const int64_t rows = std::max<int64_t>(1, rank);
    c.operands.push_back({"a", s.dtype, {rows, s.in}, Role::input, normal(0.2)});
    c.operands.push_back({"b", s.dtype, {s.out, rows}, Role::input, normal(0.2)});
  }
  const int64_t adapters = std::ssize(s.ranks);
  c.scratch = [s, most, adapters](int, bool) {
    return ops::lora_bytes(s.tokens, most) + Arena::footprint(DType::i64, Shape{adapters, layers, 3});
  };
  c.run = [s, most, adapters](ops::Context& context, const Arguments& a) {
    const Arena::Scope scope(context.scratch);
    const Tensor entries = context.scratch.allocate(DType::i64, Shape{adapters, layers, 3});
    std::vector<ops::LoraEntry> table(static_cast<size_t>(adapters * layers));
    for (size_t i = 0; i < s.ranks.size(); ++i) {
      table[i * layers + the_layer] = {a[first + 2 * i].data, a[first + 2 * i + 1].data,
                                       static_cast<int32_t>(s.ranks[i]), factor_of(i)};
    }
    context.device.copy_from_host(entries.data, table.data(), entries.bytes());
    ops::lora(context, a[y], a[x], entries, a[slots], {.layer = the_layer, .rank = most});
  };
  c.reference = [s](Values& v, Conditions& conditions) {
    const auto in = static_cast<size_t>(s.in), out = static_cast<size_t>(s.out);
    std::vector<double>& terms = conditions[y].sum;
    terms = absolute(v[y]);
    for (size_t t = 0; t < v[slots].size(); ++t) {
      if (v[slots][t] < 0) continue;
      const auto slot = static_cast<size_t>(v[slots][t]);
      const auto rank = static_cast<size_t>(s.ranks[slot]);
      for (size_t r = 0; r < rank; ++r) {
        double low = 0;
        double of_low = 0;
        for (size_t i = 0; i < in; ++i) {
          const double term = v[first + 2 * slot][r * in + i] * v[x][t * in + i];
          low += term;
          of_low += std::abs(term);
        }
        of_low += std::sqrt(static_cast<double>(in)) * std::abs(low);
        for (size_t o = 0; o < out; ++o) {
          const double factor = static_cast<double>(factor_of(slot)) * v[first + 2 * slot + 1][o * rank + r];
          v[y][t * out + o] += factor * low;
          terms[t * out + o] += std::abs(factor) * of_low;
        }
      }
    }
  };
  c.precision = Precision::rounded_once;
  c.length = s.in + most;
  const auto mean = static_cast<double>(most);
  const double size = static_cast<double>(size_of(s.dtype));
  c.flops = 2.0 * static_cast<double>(s.tokens) * mean * static_cast<double>(s.in + s.out);
  c.bytes = size * (static_cast<double>(std::min(s.tokens, adapters)) * mean * static_cast<double>(s.in + s.out) +
                    static_cast<double>(s.tokens * (s.in + 2 * s.out)));
  return c;
}

// The experts' layers of all adapters: adapter i, expert e has rank ranks[i][e]; operands a and b in this order.
struct GroupedSizes {
  DType dtype;
  std::vector<int64_t> counts;  // rows of each expert
  int64_t tokens, in, out;
  std::vector<std::vector<int64_t>> ranks;
};

OpCase grouped_lora_case(const GroupedSizes& s) {
  constexpr size_t token_of_row = 3, offsets = 4, weights = 5;  // operands behind y, x and slots
  const size_t experts = s.counts.size();
  constexpr int64_t first_layer = 1, step = 2;
  const int64_t layer_count = first_layer + static_cast<int64_t>(experts) * step;
  std::vector<double> begins = {0};
  for (const int64_t count : s.counts) begins.push_back(begins.back() + static_cast<double>(count));
  const auto rows = static_cast<int64_t>(begins.back());
  int64_t most = 1;
  for (const auto& of_adapter : s.ranks) most = std::max(most, *std::max_element(of_adapter.begin(), of_adapter.end()));
  OpCase c{
      .op = "grouped_lora",
      .name = fmt::format("{} E={} N={} I={} O={} S={}", name(s.dtype), experts, rows, s.in, s.out, s.ranks.size())};
  c.operands = {{"y", s.dtype, {rows, s.out}, Role::inout},
                {"x", s.dtype, {rows, s.in}},
                {"slots", DType::i32, {s.tokens}, Role::input, integers(-1, std::ssize(s.ranks) - 1)},
                {"token_of_row", DType::i32, {rows}, Role::input, integers(0, s.tokens - 1)},
                {"offsets", DType::i32, {std::ssize(begins)}, Role::input, fixed(begins)}};
  for (const auto& of_adapter : s.ranks) {
    for (const int64_t rank : of_adapter) {
      c.operands.push_back({"a", s.dtype, {std::max<int64_t>(1, rank), s.in}, Role::input, normal(0.2)});
      c.operands.push_back({"b", s.dtype, {s.out, std::max<int64_t>(1, rank)}, Role::input, normal(0.2)});
    }
  }
  const Shape table_shape{std::ssize(s.ranks), layer_count, 3};
  c.scratch = [=](int, bool) { return ops::lora_bytes(rows, most) + Arena::footprint(DType::i64, table_shape); };
  c.run = [=](ops::Context& context, const Arguments& a) {
    const Arena::Scope scope(context.scratch);
    const Tensor entries = context.scratch.allocate(DType::i64, table_shape);
    std::vector<ops::LoraEntry> table(s.ranks.size() * static_cast<size_t>(layer_count));
    for (size_t i = 0; i < s.ranks.size(); ++i) {
      for (size_t e = 0; e < experts; ++e) {
        const size_t operand = weights + 2 * (i * experts + e);
        table[i * static_cast<size_t>(layer_count) + static_cast<size_t>(first_layer) + e * step] = {
            a[operand].data, a[operand + 1].data, static_cast<int32_t>(s.ranks[i][e]), factor_of(i)};
      }
    }
    context.device.copy_from_host(entries.data, table.data(), entries.bytes());
    ops::grouped_lora(context, a[y], a[x], entries, a[slots], a[token_of_row], a[offsets],
                      {.layer = first_layer, .layer_step = step, .rank = most});
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    const auto in = static_cast<size_t>(s.in), out = static_cast<size_t>(s.out);
    std::vector<double>& terms = conditions[y].sum;
    terms = absolute(v[y]);
    for (size_t e = 0; e < experts; ++e) {
      for (auto n = static_cast<size_t>(begins[e]); n < static_cast<size_t>(begins[e + 1]); ++n) {
        const double slot = v[slots][static_cast<size_t>(v[token_of_row][n])];
        if (slot < 0) continue;
        const auto adapter = static_cast<size_t>(slot);
        const size_t operand = weights + 2 * (adapter * experts + e);
        const auto rank = static_cast<size_t>(s.ranks[adapter][e]);
        for (size_t r = 0; r < rank; ++r) {
          double low = 0, of_low = 0;
          for (size_t i = 0; i < in; ++i) {
            low += v[operand][r * in + i] * v[x][n * in + i];
            of_low += std::abs(v[operand][r * in + i] * v[x][n * in + i]);
          }
          of_low += std::sqrt(static_cast<double>(in)) * std::abs(low);
          for (size_t o = 0; o < out; ++o) {
            const double factor = static_cast<double>(factor_of(adapter)) * v[operand + 1][o * rank + r];
            v[y][n * out + o] += factor * low;
            terms[n * out + o] += std::abs(factor) * of_low;
          }
        }
      }
    }
  };
  c.precision = Precision::rounded_once;
  c.length = s.in + most;
  c.flops = 2.0 * static_cast<double>(rows * most * (s.in + s.out));
  c.bytes = static_cast<double>(rows * (s.in + 2 * s.out)) * static_cast<double>(size_of(s.dtype));
  return c;
}

}  // namespace

std::vector<OpCase> lora_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool wide : {false, true}) {
      if (wide && dtype == DType::f32) continue;
      cases.push_back(lora_case({dtype, 9, 33, 17, {8, 0, 3, 16, 40}, wide}));
      cases.push_back(lora_case({dtype, 1, 1, 1, {1}, wide}));
      cases.push_back(lora_case({dtype, 5, 128, 300, {8, 8}, wide}));
    }
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    cases.push_back(grouped_lora_case({dtype, {2, 0, 5, 1}, 4, 33, 17, {{4, 4, 0, 3}, {0, 1, 8, 2}}}));
    cases.push_back(grouped_lora_case({dtype, {0, 3}, 3, 64, 300, {{2, 5}}}));
    cases.push_back(grouped_lora_case({dtype, {1}, 1, 8, 8, {{1}}}));
  }
  cases.push_back(timing(
      grouped_lora_case({DType::bf16, std::vector<int64_t>(64, 4), 32, 2048, 768, {std::vector<int64_t>(64, 8)}})));
  // q of SmolLM2-135M, one token each of 32 requests: all with one adapter, and each with its own.
  for (const size_t adapters : {1, 32}) {
    cases.push_back(timing(lora_case({DType::bf16, 32, 576, 576, std::vector<int64_t>(adapters, 8)})));
  }
  cases.push_back(large(lora_case({DType::bf16, 256, 4096, 4096, std::vector<int64_t>(64, 16)})));
  return cases;
}

}  // namespace ingot::ops::testing
