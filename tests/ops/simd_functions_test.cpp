// The accuracy that simd/simd.h promises for its functions, against the C library in double, at every level.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/isa.h"
#include "tests/ops/simd/functions.h"

namespace ingot::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// `count` values from `low` to `high`, both included.
std::vector<float> range(float low, float high, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count - 1);
    values[i] = static_cast<float>(low + share * (static_cast<double>(high) - low));
  }
  return values;
}

std::vector<float> apply(SimdFunctions::Function* function, const std::vector<float>& x) {
  std::vector<float> padded = x, y(x.size() + 16);
  padded.resize((x.size() + 15) / 16 * 16);
  function(y.data(), padded.data(), static_cast<int64_t>(padded.size()));
  y.resize(x.size());
  return y;
}

// The distance of `y` from `exact` in units of the last place of `exact` as fp32.
double ulps(float y, double exact) {
  const auto nearest = static_cast<float>(exact);
  const float next = std::nextafter(std::fabs(nearest), infinity);
  return std::fabs(y - exact) / (static_cast<double>(next) - std::fabs(nearest));
}

template <class Exact>
double worst_ulps(SimdFunctions::Function* function, const std::vector<float>& x, Exact exact) {
  const std::vector<float> y = apply(function, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], exact(static_cast<double>(x[i])));
    if (!(error <= worst)) worst = error;  // also if it is NaN
    if (std::isnan(worst)) break;
  }
  return worst;
}

struct Level {
  const char* name;
  const SimdFunctions* functions;
};
void PrintTo(const Level& level, std::ostream* out) { *out << level.name; }

std::vector<Level> levels_here() {
  std::vector<Level> levels = {{"plain", &plain::simd_functions}};
#if defined(INGOT_SIMD_X86)
  if (best_isa() >= Isa::avx2) levels.push_back({"avx2", &avx2::simd_functions});
  if (best_isa() >= Isa::avx512) levels.push_back({"avx512", &avx512::simd_functions});
#endif
  return levels;
}

class SimdFunctionsOf : public testing::TestWithParam<Level> {
 protected:
  const SimdFunctions& functions = *GetParam().functions;
};

TEST_P(SimdFunctionsOf, Exp2IsWithinTwoUlps) {
  const auto exact = [](double x) { return std::exp2(x); };
  EXPECT_LE(worst_ulps(functions.exp2, range(-125, 127, 400'001), exact), 2);
  EXPECT_LE(worst_ulps(functions.exp2, range(-1, 1, 400'001), exact), 2);
  EXPECT_LE(worst_ulps(functions.exp2, range(-148, -125, 10'001), exact), 2);  // subnormal
}

TEST_P(SimdFunctionsOf, Exp2OfWholeNumbersAndLimits) {
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(apply(functions.exp2, {static_cast<float>(n)})[0], std::ldexp(1.0F, n)) << n;
  }
  EXPECT_EQ(apply(functions.exp2, {-200})[0], 0);
  EXPECT_EQ(apply(functions.exp2, {-infinity})[0], 0);
  EXPECT_TRUE(std::isnan(apply(functions.exp2, {NAN})[0]));
}

TEST_P(SimdFunctionsOf, ExpIsWithinTwoUlps) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulps(functions.exp, range(-87, 88.72F, 400'001), exact), 2);
  EXPECT_LE(worst_ulps(functions.exp, range(-103, -87, 10'001), exact), 2);  // down to the smallest subnormal
  EXPECT_EQ(apply(functions.exp, {88.8F})[0], infinity);
  EXPECT_EQ(apply(functions.exp, {-110})[0], 0);
  EXPECT_LE(worst_ulps(functions.exp, range(-1, 1, 400'001), exact), 2);
  EXPECT_EQ(apply(functions.exp, {0})[0], 1);
  EXPECT_EQ(apply(functions.exp, {-infinity})[0], 0);
  EXPECT_EQ(apply(functions.exp, {infinity})[0], infinity);
  EXPECT_TRUE(std::isnan(apply(functions.exp, {NAN})[0]));
}

TEST_P(SimdFunctionsOf, ReciprocalIsWithinTwoUlps) {
  const auto exact = [](double x) { return 1 / x; };
  EXPECT_LE(worst_ulps(functions.reciprocal, range(1, 4, 400'001), exact), 2);
  EXPECT_LE(worst_ulps(functions.reciprocal, range(4, 1e6F, 400'001), exact), 2);
  EXPECT_LE(worst_ulps(functions.reciprocal, range(1e6F, 0x1p125F, 400'001), exact), 2);
  EXPECT_EQ(apply(functions.reciprocal, {infinity})[0], 0);
  EXPECT_TRUE(std::isnan(apply(functions.reciprocal, {NAN})[0]));
}

TEST_P(SimdFunctionsOf, TanhIsWithinFourUlps) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst_ulps(functions.tanh, range(-10, 10, 400'001), exact), 4);
  EXPECT_LE(worst_ulps(functions.tanh, range(-0.7F, 0.7F, 400'001), exact), 4);
  EXPECT_EQ(apply(functions.tanh, {infinity})[0], 1);
  EXPECT_EQ(apply(functions.tanh, {-infinity})[0], -1);
  EXPECT_TRUE(std::isnan(apply(functions.tanh, {NAN})[0]));
}

INSTANTIATE_TEST_SUITE_P(Levels, SimdFunctionsOf, testing::ValuesIn(levels_here()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace ingot::cpu
