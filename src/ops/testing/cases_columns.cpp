#include <fmt/ranges.h>

#include "ops/columns.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// The column of x for column `narrow` of y.
size_t wide_column(const ops::ColumnsAttributes& a, size_t narrow) {
  const auto width = static_cast<size_t>(a.width);
  return narrow / width * static_cast<size_t>(a.stride) + static_cast<size_t>(a.offset) + narrow % width;
}

// The operands are y of every part, then x.
OpCase columns_case(DType dtype, int64_t rows, int64_t n, const std::vector<ops::ColumnsAttributes>& parts,
                    bool gather) {
  OpCase c{.op = gather ? "gather_columns" : "scatter_columns"};
  c.also_f16 = gather;
  const size_t count = parts.size();
  std::vector<std::string> texts;
  for (const ops::ColumnsAttributes& a : parts) {
    texts.push_back(fmt::format("{} of {}, {} apart from {}", a.groups, a.width, a.stride, a.offset));
    c.operands.push_back({fmt::format("y{}", c.operands.size()),
                          dtype,
                          {rows, a.groups * a.width},
                          gather ? Role::output : Role::input});
    c.bytes += 2.0 * static_cast<double>(rows * a.groups * a.width) * static_cast<double>(size_of(dtype));
  }
  c.name = fmt::format("{} T={} N={} {}", name(dtype), rows, n, fmt::join(texts, "; "));
  c.operands.push_back({"x", dtype, {rows, n}, gather ? Role::input : Role::inout});
  c.run = [=](ops::Context& context, const Arguments& arguments) {
    const std::span<const Tensor> y(arguments.tensors.data(), count);
    gather ? ops::gather_columns(context, y, arguments[count], parts)
           : ops::scatter_columns(context, arguments[count], y, parts);
  };
  c.reference = [=](Values& v, Conditions&) {
    for (size_t part = 0; part < count; ++part) {
      const auto width = static_cast<size_t>(parts[part].groups * parts[part].width);
      for (size_t i = 0; i < v[part].size(); ++i) {
        const size_t at = i / width * static_cast<size_t>(n) + wide_column(parts[part], i % width);
        (gather ? v[part][i] : v[count][at]) = gather ? v[count][at] : v[part][i];
      }
    }
  };
  c.precision = Precision::exact;
  return c;
}

}  // namespace

std::vector<OpCase> columns_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool gather : {true, false}) {
      cases.push_back(columns_case(dtype, 3, 1, {{.width = 1}}, gather));
      cases.push_back(columns_case(dtype, 3, 37, {{.width = 17, .offset = 20}}, gather));
      cases.push_back(columns_case(dtype, 5, 131, {{.groups = 3, .width = 7, .stride = 33, .offset = 5}}, gather));
      cases.push_back(columns_case(dtype, 70, 192, {{.groups = 4, .width = 16, .stride = 48, .offset = 32}}, gather));
      cases.push_back(columns_case(dtype, 4, 33, {{.groups = 3, .width = 11, .stride = 11}}, gather));
      cases.push_back(columns_case(dtype, 0, 33, {{.groups = 3, .width = 11, .stride = 11}}, gather));
      // q, k and v: one after the other, with columns that no part has; of two heads each.
      cases.push_back(columns_case(
          dtype, 6, 320, {{.width = 192}, {.width = 64, .offset = 192}, {.width = 56, .offset = 256}}, gather));
      cases.push_back(columns_case(dtype, 5, 45, {{.width = 33}, {.width = 7, .offset = 38}}, gather));
      const ops::ColumnsAttributes head{.groups = 2, .width = 16, .stride = 48};
      std::vector<ops::ColumnsAttributes> heads = {head, head, head};
      heads[1].offset = 16;
      heads[2].offset = 32;
      cases.push_back(columns_case(dtype, 3, 96, heads, gather));
      cases.push_back(
          timing(columns_case(dtype, 1024, 6144, {{.groups = 32, .width = 64, .stride = 192, .offset = 64}}, gather)));
    }
  }
  return cases;
}

}  // namespace ingot::ops::testing
