// The op table's error bounds, tested with operations that are wrong in known ways.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/half.h"
#include "ops/testing/op_table.h"
#include "tensor/tolerance.h"

namespace ingot {
namespace {

using ops::testing::Arguments;
using ops::testing::Conditions;
using ops::testing::OpCase;
using ops::testing::Outcome;
using ops::testing::Precision;
using ops::testing::Role;
using ops::testing::Values;

double in_bf16(double x) { return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(x)))); }

class OpTableRules : public testing::Test {
 protected:
  Outcome outcome(const OpCase& op_case) { return ops::testing::compare(context_, op_case).outcome; }

  // An op whose expected output is `wanted` and whose result is `found`, with the sum of absolute terms of each
  // element.
  Outcome outcome(DType dtype, const std::vector<double>& wanted, const std::vector<double>& found,
                  const std::vector<double>& terms = {}, Precision precision = Precision::computed) {
    const auto n = static_cast<int64_t>(wanted.size());
    OpCase c{.op = "op", .name = "case"};
    c.operands = {{"y", dtype, {n}, Role::output}};
    c.run = [=](ops::Context&, const Arguments& a) {
      for (size_t i = 0; i < found.size(); ++i) {
        if (dtype == DType::bf16) {
          a[0].as<uint16_t>()[i] = float_to_bf16(static_cast<float>(found[i]));
        } else {
          a[0].as<float>()[i] = static_cast<float>(found[i]);
        }
      }
    };
    c.reference = [=](Values& v, Conditions& conditions) {
      v[0] = wanted;
      conditions[0] = {.sum = terms, .cancels = !terms.empty()};
    };
    c.precision = precision;
    return outcome(c);
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  Arena scratch_;
  ops::Context context_{*device_, registry_, scratch_, nullptr};
};

TEST_F(OpTableRules, SmallElementsAreHeldToTheirOwnSize) {
  // A bound of 8 2^-8 of the largest element would accept anything from -3 to 3 for the second one.
  EXPECT_EQ(outcome(DType::bf16, {100, 0.001}, {100, 0.001}), Outcome::passed);
  EXPECT_EQ(outcome(DType::bf16, {100, 0.001}, {100, 0.00102}), Outcome::failed);
  EXPECT_EQ(outcome(DType::bf16, {100, 0.001}, {100, -0.001}), Outcome::failed);
  EXPECT_EQ(outcome(DType::bf16, {100, 0.001}, {100, 0}), Outcome::failed);
  EXPECT_EQ(outcome(DType::f32, {100, 0.001}, {100, 0.001 * (1 + 1e-6)}), Outcome::failed);
}

TEST_F(OpTableRules, CancellationMayHaveTheErrorOfItsTerms) {
  const double found = 0.001 + 1e4 * unit_roundoff(DType::f32);
  EXPECT_EQ(outcome(DType::f32, {0.001}, {found}), Outcome::failed);
  EXPECT_EQ(outcome(DType::f32, {0.001}, {found}, {2e4}), Outcome::passed);
  EXPECT_EQ(outcome(DType::f32, {0.001}, {found}, {2e3}), Outcome::failed);
}

TEST_F(OpTableRules, ASecondRoundingIsDetected) {
  std::vector<double> wanted, once, twice;
  for (int i = 0; i < 1000; ++i) {
    const double gate = 1 + 0.37 * std::sin(i), up = 1.7 + 0.31 * std::cos(3 * i);
    wanted.push_back(gate * up);
    once.push_back(gate * up);
    twice.push_back(in_bf16(gate) * up);
  }
  EXPECT_EQ(outcome(DType::bf16, wanted, once, {}, Precision::rounded_once), Outcome::passed);
  EXPECT_EQ(outcome(DType::bf16, wanted, twice, {}, Precision::rounded_once), Outcome::failed);
  EXPECT_EQ(outcome(DType::bf16, wanted, twice), Outcome::failed);
}

TEST_F(OpTableRules, ExactValuesMayNotBeOffByOneUnit) {
  EXPECT_EQ(outcome(DType::f32, {1, 1.0 / 3}, {1, 1.0 / 3}, {}, Precision::exact), Outcome::passed);
  EXPECT_EQ(outcome(DType::f32, {1}, {1 + 0x1p-23}, {}, Precision::exact), Outcome::failed);
  EXPECT_EQ(outcome(DType::f32, {1}, {1 + 0x1p-23}), Outcome::passed);
}

TEST_F(OpTableRules, AnUnwrittenIntegerIsAnError) {
  const auto timed = [&](int64_t written) {
    OpCase c{.op = "op", .name = "case", .timing_only = true, .large = true};
    c.operands = {{"y", DType::i32, {5}, Role::output}, {"z", DType::i64, {5}, Role::output}};
    c.run = [written](ops::Context&, const Arguments& a) {
      for (int64_t i = 0; i < written; ++i) a[0].as<int32_t>()[i] = 77;
      for (int64_t i = 0; i < written; ++i) a[1].as<int64_t>()[i] = -1;
    };
    ops::testing::time_case(context_, c, 0);
  };
  timed(5);
  EXPECT_THROW(timed(4), Error);
}

}  // namespace
}  // namespace ingot
