#include <complex>

#include "ops/rope_kv_store.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// Heads with 2 `pairs` rotated elements and `rest` others; pages of four tokens, in the type `pages_dtype`.
OpCase rope_kv_store_case(DType pages_dtype, DType dtype, int64_t tokens, int64_t heads, int64_t kv_heads,
                          int64_t pairs, int64_t rest) {
  const int64_t page = 4, pages = tokens / page + 3, slots = pages * page;
  const int64_t dim = 2 * pairs + rest, width = kv_heads * dim;
  OpCase c{.op = "rope_kv_store",
           .name = fmt::format("{} into {} T={} heads={}/{} D={} of {}", name(dtype), name(pages_dtype), tokens, heads,
                               kv_heads, 2 * pairs, dim)};
  c.operands = {{"q", dtype, {tokens, heads * dim}, Role::inout},
                {"k", dtype, {tokens, width}, Role::inout},
                {"k pages", pages_dtype, {pages, page, width}, Role::inout},
                {"v pages", pages_dtype, {pages, page, width}, Role::inout},
                {"v", dtype, {tokens, width}},
                {"positions", DType::i32, {tokens}, Role::input, integers(0, 4096)},
                {"frequencies", DType::f32, {pairs}},
                {"slots", DType::i32, {tokens}}};
  c.operands[6].fill = [pairs](std::vector<double>& values, RandomStream&) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
  };
  c.operands[7].fill = [slots](std::vector<double>& values, RandomStream&) {
    for (size_t t = 0; t < values.size(); ++t) values[t] = static_cast<double>(slots - 1 - static_cast<int64_t>(t));
  };
  c.run = [heads, kv_heads](ops::Context& context, const Arguments& a) {
    ops::rope_kv_store(context, a[0], {a[2], a[3]}, a[1], a[4], a[5], a[6], a[7],
                       {.heads = heads, .kv_heads = kv_heads});
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    const auto half = static_cast<size_t>(pairs);
    for (const size_t x : {size_t{0}, size_t{1}}) {
      const std::vector<double> before = v[x];
      conditions[x].sum = absolute(before);
      const auto row = static_cast<size_t>((x == 0 ? heads : kv_heads) * dim);
      for (size_t i = 0; i < before.size(); ++i) {
        const size_t place = i % static_cast<size_t>(dim);  // index in the head
        if (place >= half) continue;
        const float angle = static_cast<float>(v[5][i / row]) * static_cast<float>(v[6][place]);
        const auto rotated =
            std::complex<double>(before[i], before[i + half]) * std::polar(1.0, static_cast<double>(angle));
        v[x][i] = rotated.real();
        v[x][i + half] = rotated.imag();
        // As of rope: sines and cosines have absolute errors.
        conditions[x].sum[i] = conditions[x].sum[i + half] = 2.0 * (std::abs(before[i]) + std::abs(before[i + half]));
      }
    }
    conditions[2].sum = absolute(v[2]);
    for (size_t i = 0; i < v[1].size(); ++i) {
      const auto w = static_cast<size_t>(width);
      const size_t to = static_cast<size_t>(v[7][i / w]) * w + i % w;
      v[2][to] = v[1][i];
      v[3][to] = v[4][i];
      conditions[2].sum[to] = conditions[1].sum[i];
    }
  };
  c.flops = 3.0 * static_cast<double>(tokens * (heads + kv_heads) * dim);
  c.bytes = static_cast<double>(tokens * dim) *
            (2.0 * static_cast<double>(heads) + 5.0 * static_cast<double>(kv_heads)) *
            static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> rope_kv_store_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [pairs, rest] : {std::pair<int64_t, int64_t>{32, 0}, {5, 0}, {4, 24}, {10, 3}, {300, 8}})
      cases.push_back(rope_kv_store_case(dtype, dtype, 9, 6, 2, pairs, rest));
    cases.push_back(rope_kv_store_case(dtype, dtype, 1, 1, 1, 8, 0));
    cases.push_back(rope_kv_store_case(dtype, dtype, 0, 2, 1, 8, 0));
  }
  cases.push_back(rope_kv_store_case(DType::bf16, DType::f32, 9, 4, 2, 8, 8));
  cases.push_back(timing(rope_kv_store_case(DType::bf16, DType::bf16, 256, 32, 8, 64, 0)));
  return cases;
}

}  // namespace ingot::ops::testing
