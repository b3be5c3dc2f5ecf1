#include "ops/sum_parts.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

OpCase sum_case(DType dtype, int64_t count, int64_t n, bool accumulate) {
  OpCase c{.op = "sum_parts", .name = fmt::format("{} P={} N={}{}", name(dtype), count, n, accumulate ? " added" : "")};
  // Sums beyond 32 bits that fp64 holds exactly.
  const Fill integers = [](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = std::floor(std::ldexp(2 * random.uniform_double() - 1, 48));
  };
  const Fill fill = dtype == DType::i64 ? integers : normal();
  c.also_f16 = dtype == DType::bf16;
  c.operands = {{"y", dtype, {n}, accumulate ? Role::inout : Role::output, fill},
                {"parts", dtype, {count, n}, Role::input, fill}};
  c.run = [accumulate](ops::Context& context, const Arguments& a) { ops::sum_parts(context, a[0], a[1], accumulate); };
  const bool integer = dtype == DType::i64;
  c.reference = [=](Values& v, Conditions&) {
    const auto width = static_cast<size_t>(n);
    for (size_t i = 0; i < width; ++i) {
      double sum = accumulate ? v[0][i] : v[1][i];
      for (auto p = static_cast<size_t>(accumulate ? 0 : 1); p < static_cast<size_t>(count); ++p) {
        sum += v[1][p * width + i];
        if (!integer) sum = static_cast<double>(static_cast<float>(sum));
      }
      v[0][i] = sum;
    }
  };
  c.precision = Precision::exact;
  c.bytes = static_cast<double>((count + (accumulate ? 2 : 1)) * n) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> sum_parts_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
    for (const bool accumulate : {true, false}) {
      cases.push_back(sum_case(dtype, 1, 5, accumulate));
      cases.push_back(sum_case(dtype, 3, 1024, accumulate));
      cases.push_back(sum_case(dtype, 8, 2731, accumulate));
      cases.push_back(sum_case(dtype, 2, 0, accumulate));
    }
    cases.push_back(timing(sum_case(dtype, 4, int64_t{1} << 20, false)));
  }
  return cases;
}

}  // namespace ingot::ops::testing
