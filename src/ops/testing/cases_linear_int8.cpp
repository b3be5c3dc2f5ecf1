#include <algorithm>
#include <cmath>

#include "ops/linear_int8.h"
#include "ops/linear_int8_bytes.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  int64_t tokens, out, in;
};

// Blocks of zeros, of equal numbers, of numbers that are too small, and of numbers of many magnitudes.
Fill rows_of_every_kind(int64_t width) {
  return [width](std::vector<double>& values, RandomStream& random) {
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t block = i / 32, row = i / static_cast<size_t>(width);
      values[i] = random.normal() * std::exp2(-8.0 * static_cast<double>(block % 3));
      if (row % 5 == 3) values[i] = block % 3 == 0 ? 0.0 : block % 3 == 1 ? -3.0 : 1e-38;
    }
  };
}

OpCase linear_case(DType result, DType given, StorageType storage, Sizes s, bool accumulate) {
  OpCase c{.op = "linear_int8",
           .name = fmt::format("{} x {} to {} T={} out={} in={}{}", name(given), name(storage), name(result), s.tokens,
                               s.out, s.in, accumulate ? " accumulate" : "")};
  c.operands = {{"y", result, {s.tokens, s.out}, accumulate ? Role::inout : Role::output},
                {"x", given, {s.tokens, s.in}, Role::input, rows_of_every_kind(s.in)},
                {"weight", DType::u8, {s.out, s.in}, Role::input, normal(), storage}};
  c.run = [=](ops::Context& context, const Arguments& a) {
    ops::linear_int8(context, a[0], a[1], a.weights[2], {.accumulate = accumulate});
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> x = v[1];
    for (int64_t t = 0; t < s.tokens; ++t) round_to_int8(x.data() + t * s.in, s.in);
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    std::vector<double>& terms = conditions[0].sum;
    terms = absolute(v[0]);
    conditions[0].cancels = true;
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t o = 0; o < s.out; ++o) {
        const auto to = static_cast<size_t>(t * s.out + o);
        for (int64_t i = 0; i < s.in; ++i) {
          const double term = x[static_cast<size_t>(t * s.in + i)] * v[2][static_cast<size_t>(o * s.in + i)];
          v[0][to] += term;
          terms[to] += std::abs(term);
        }
      }
    }
  };
  c.length = s.in / 32 + 1;
  c.scratch = [=](int, bool) { return ops::linear_int8_bytes(s.tokens, s.in); };
  c.flops = 2.0 * static_cast<double>(s.tokens * s.out * s.in);
  c.bytes = static_cast<double>(static_cast<size_t>(s.out) * row_bytes(storage, s.in)) +
            static_cast<double>(s.tokens * s.in) * static_cast<double>(size_of(given)) +
            static_cast<double>(s.tokens * s.out) * static_cast<double>(size_of(result));
  return c;
}

}  // namespace

std::vector<OpCase> linear_int8_cases() {
  std::vector<OpCase> cases;
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0}) {
    for (const auto& [result, given] : linear_types) {
      // One block; whole steps of two and four blocks with every number of blocks left over; rows and tokens that leave
      // every remainder of a tile.
      cases.push_back(linear_case(result, given, storage, {1, 5, 32}, false));
      cases.push_back(linear_case(result, given, storage, {1, 27, 96}, false));
      cases.push_back(linear_case(result, given, storage, {7, 14, 65 * 32}, false));
      cases.push_back(linear_case(result, given, storage, {2, 9, 64}, true));
      cases.push_back(linear_case(result, given, storage, {3, 9, 4 * 32}, false));
      cases.push_back(linear_case(result, given, storage, {5, 6, 6 * 32}, false));
      cases.push_back(linear_case(result, given, storage, {2, 13, 7 * 32}, true));
    }
    for (const Sizes s : {Sizes{1, 8192, 2048}, Sizes{8, 8192, 2048}, Sizes{512, 2048, 2048}}) {
      cases.push_back(timing(linear_case(DType::bf16, DType::bf16, storage, s, false)));
    }
  }
  return cases;
}

}  // namespace ingot::ops::testing
