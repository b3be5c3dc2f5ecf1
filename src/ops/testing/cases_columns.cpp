#include "base/error.h"
#include "ops/columns.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// The column of x for column `narrow` of y.
size_t wide_column(const ops::ColumnsAttributes& a, size_t narrow) {
  const auto width = static_cast<size_t>(a.width);
  return narrow / width * static_cast<size_t>(a.stride) + static_cast<size_t>(a.offset) + narrow % width;
}

OpCase columns_case(DType dtype, int64_t rows, int64_t n, ops::ColumnsAttributes a, bool gather) {
  OpCase c{.op = gather ? "gather_columns" : "scatter_columns",
           .name = fmt::format("{} T={} N={} {} of {}, {} apart from {}", name(dtype), rows, n, a.groups, a.width,
                               a.stride, a.offset)};
  const int64_t narrow = a.groups * a.width;
  c.also_f16 = gather;
  c.operands = {{"y", dtype, {rows, narrow}, gather ? Role::output : Role::input},
                {"x", dtype, {rows, n}, gather ? Role::input : Role::inout}};
  c.run = [a, gather](ops::Context& context, const Arguments& arguments) {
    gather ? ops::gather_columns(context, arguments[0], arguments[1], a)
           : ops::scatter_columns(context, arguments[1], arguments[0], a);
  };
  c.reference = [a, n, narrow, gather](Values& v, Conditions&) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      const auto width = static_cast<size_t>(narrow);
      const size_t at = i / width * static_cast<size_t>(n) + wide_column(a, i % width);
      (gather ? v[0][i] : v[1][at]) = gather ? v[1][at] : v[0][i];
    }
  };
  c.precision = Precision::exact;
  c.bytes = 2.0 * static_cast<double>(rows * narrow) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> columns_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool gather : {true, false}) {
      cases.push_back(columns_case(dtype, 3, 1, {.width = 1}, gather));
      cases.push_back(columns_case(dtype, 3, 37, {.width = 17, .offset = 20}, gather));
      cases.push_back(columns_case(dtype, 5, 131, {.groups = 3, .width = 7, .stride = 33, .offset = 5}, gather));
      cases.push_back(columns_case(dtype, 70, 192, {.groups = 4, .width = 16, .stride = 48, .offset = 32}, gather));
      cases.push_back(columns_case(dtype, 4, 33, {.groups = 3, .width = 11, .stride = 11}, gather));
      cases.push_back(columns_case(dtype, 0, 33, {.groups = 3, .width = 11, .stride = 11}, gather));
      cases.push_back(
          timing(columns_case(dtype, 1024, 6144, {.groups = 32, .width = 64, .stride = 192, .offset = 64}, gather)));
    }
  }
  return cases;
}

}  // namespace ingot::ops::testing
