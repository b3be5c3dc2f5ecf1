#include "base/error.h"
#include "ops/embedding.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  int64_t tokens, vocabulary, width;
};

OpCase embedding_case(DType dtype, StorageType storage, Sizes s) {
  OpCase c{.op = "embedding",
           .name = fmt::format("{} to {} T={} V={} H={}", name(storage), name(dtype), s.tokens, s.vocabulary, s.width)};
  c.operands = {{"y", dtype, {s.tokens, s.width}, Role::output},
                {"table", DType::u8, {s.vocabulary, s.width}, Role::input, normal(), storage},
                {"ids", DType::i32, {s.tokens}, Role::input, integers(0, s.vocabulary - 1)}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::embedding(context, a[0], a.weights[1], a[2]); };
  c.reference = [width = static_cast<size_t>(s.width)](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) v[0][i] = v[1][static_cast<size_t>(v[2][i / width]) * width + i % width];
  };
  c.bytes = static_cast<double>(static_cast<size_t>(s.tokens) * row_bytes(storage, s.width)) +
            static_cast<double>(s.tokens * s.width) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase embedding_backward_case(DType dtype, Sizes s, bool accumulate) {
  OpCase c{.op = "embedding_backward",
           .name = fmt::format("{} T={} V={} H={}{}", name(dtype), s.tokens, s.vocabulary, s.width,
                               accumulate ? " accumulate" : "")};
  c.operands = {{"dtable", DType::f32, {s.vocabulary, s.width}, accumulate ? Role::inout : Role::output},
                {"dy", dtype, {s.tokens, s.width}},
                {"ids", DType::i32, {s.tokens}, Role::input, integers(0, s.vocabulary - 1)}};
  c.run = [accumulate](ops::Context& context, const Arguments& a) {
    ops::embedding_backward(context, a[0], a[1], a[2], accumulate);
  };
  const size_t width = static_cast<size_t>(s.width);
  c.reference = [accumulate, width](Values& v, Conditions& conditions) {
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0].sum = absolute(v[0]);
    for (size_t i = 0; i < v[1].size(); ++i) {
      const size_t to = static_cast<size_t>(v[2][i / width]) * width + i % width;
      v[0][to] += v[1][i];
      conditions[0].sum[to] += std::abs(v[1][i]);
    }
  };
  c.length = s.tokens + 1;
  c.gradients = {{.gradient = 0, .cotangent = 1, .forward = [width](const Values& v, const std::vector<double>& table) {
                    std::vector<double> y;
                    for (const double id : v[2]) {
                      const auto row = table.begin() + static_cast<int64_t>(static_cast<size_t>(id) * width);
                      y.insert(y.end(), row, row + static_cast<int64_t>(width));
                    }
                    return y;
                  }}};
  c.flops = static_cast<double>(s.tokens * s.width);
  c.bytes = static_cast<double>(s.tokens * s.width) * static_cast<double>(2 * sizeof(float) + size_of(dtype));
  return c;
}

// The same of a table that is a part of a larger one, from row `first` on: ids reach beyond it on both sides.
OpCase of_part(OpCase c, Sizes s, int64_t first) {
  c.name += fmt::format(" first={}", first);
  c.operands[2].fill = integers(0, first + 2 * s.vocabulary);
  const ops::TablePart part{first, true};
  const auto width = static_cast<size_t>(s.width);
  const auto place = [=](const Values& v, size_t i) { return v[2][i / width] - static_cast<double>(first); };
  const auto is_here = [=](double row) { return row >= 0 && row < static_cast<double>(s.vocabulary); };
  if (c.op == "embedding") {
    c.run = [part](ops::Context& context, const Arguments& a) {
      ops::embedding(context, a[0], a.weights[1], a[2], part);
    };
    c.reference = [=](Values& v, Conditions&) {
      for (size_t i = 0; i < v[0].size(); ++i) {
        const double row = place(v, i);
        v[0][i] = is_here(row) ? v[1][static_cast<size_t>(row) * width + i % width] : 0.0;
      }
    };
    return c;
  }
  c.run = [part](ops::Context& context, const Arguments& a) {
    ops::embedding_backward(context, a[0], a[1], a[2], true, part);
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    conditions[0].sum = absolute(v[0]);
    for (size_t i = 0; i < v[1].size(); ++i) {
      const double row = place(v, i);
      if (!is_here(row)) continue;
      const size_t to = static_cast<size_t>(row) * width + i % width;
      v[0][to] += v[1][i];
      conditions[0].sum[to] += std::abs(v[1][i]);
    }
  };
  c.gradients.clear();
  return c;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const StorageType storage :
         {StorageType::f32, StorageType::bf16, StorageType::f16, StorageType::q8_0, StorageType::q4_0,
          StorageType::q4_1, StorageType::q5_0, StorageType::q5_1, StorageType::q4_k, StorageType::q6_k}) {
      const bool plain = !is_block(storage);
      cases.push_back(embedding_case(dtype, storage, {1, 3, plain ? 17 : 256}));
      cases.push_back(embedding_case(dtype, storage, {33, 7, plain ? 131 : 1280}));
    }
    cases.push_back(embedding_case(dtype, StorageType::f32, {0, 3, 5}));
    cases.push_back(timing(embedding_case(dtype, StorageType::bf16, {1024, 49152, 576})));
    for (const int64_t first : {0, 5})
      cases.push_back(of_part(embedding_case(dtype, StorageType::bf16, {33, 7, 131}), {33, 7, 131}, first));
    if (dtype == DType::f16) continue;
    for (const int64_t first : {0, 9})
      cases.push_back(of_part(embedding_backward_case(dtype, {131, 17, 33}, true), {131, 17, 33}, first));
    for (const bool accumulate : {false, true}) {
      cases.push_back(embedding_backward_case(dtype, {1, 1, 1}, accumulate));
      cases.push_back(embedding_backward_case(dtype, {131, 17, 33}, accumulate));
      cases.push_back(embedding_backward_case(dtype, {3, 33, 17}, accumulate));
      cases.push_back(embedding_backward_case(dtype, {9, 5, 64}, accumulate));
      cases.push_back(embedding_backward_case(dtype, {0, 3, 5}, accumulate));
    }
    cases.push_back(embedding_backward_case(dtype, {1024, 49152, 576}, true));
    cases.back().timing_only = true;
  }
  return cases;
}

}  // namespace ingot::ops::testing
