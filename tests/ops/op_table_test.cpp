// Every implementation of every op on every case of the op table.
#include "ops/testing/op_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "backend/cpu/cpu_device.h"
#include "base/thread_pool.h"
#include "tests/ops/emulated_amx.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

struct Choice {
  std::string op;
  std::string implementation;
};

std::vector<Choice> choices() {
  ops::Registry registry;
  cpu::register_ops(registry);
  add_emulated_amx(registry);
  std::vector<Choice> all;
  for (const ops::Registry::Listing& listing : registry.listings()) {
    for (const std::string& implementation : listing.implementations) all.push_back({listing.op, implementation});
  }
  return all;
}

class OpTable : public testing::TestWithParam<Choice> {
 protected:
  OpTable() {
    cpu::register_ops(registry_);
    add_emulated_amx(registry_);
    registry_.select_implementation(GetParam().op, GetParam().implementation);
  }

  std::vector<const ops::testing::OpCase*> cases() const {
    std::vector<const ops::testing::OpCase*> found;
    for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
      if (op_case.op == GetParam().op && !op_case.timing_only) found.push_back(&op_case);
    }
    return found;
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  Arena scratch_;
  // The sanitizer run excludes BitsDoNotDependOnThreads, so three threads are used here.
  ThreadPool threads_{sanitized ? 3 : 2};
  ops::Context context_{*device_, registry_, scratch_, &threads_};
};

TEST_P(OpTable, AgreesWithTheDoubleReference) {
  int accepted = 0;
  for (const ops::testing::OpCase* op_case : cases()) {
    const ops::testing::Verdict verdict = ops::testing::compare(context_, *op_case);
    EXPECT_NE(verdict.outcome, ops::testing::Outcome::failed) << verdict.text;
    if (verdict.outcome != ops::testing::Outcome::declined) ++accepted;
  }
  EXPECT_GT(accepted, 0) << "no case of the op table was accepted by " << GetParam().op << "="
                         << GetParam().implementation;
}

TEST_P(OpTable, GradientAgreesWithDifferences) {
  for (const ops::testing::OpCase* op_case : cases()) {
    if (op_case->gradients.empty()) continue;
    const ops::testing::Verdict verdict = ops::testing::check_gradients(context_, *op_case);
    EXPECT_NE(verdict.outcome, ops::testing::Outcome::failed) << verdict.text;
  }
}

TEST_P(OpTable, BitsDoNotDependOnThreads) {
  ThreadPool one(1);
  ThreadPool three(3);
  for (const ops::testing::OpCase* op_case : cases()) {
    ops::Context single{*device_, registry_, scratch_, &one};
    const auto expected = ops::testing::output_bytes(single, *op_case);
    for (ThreadPool* pool : {&threads_, &three}) {
      ops::Context several{*device_, registry_, scratch_, pool};
      EXPECT_TRUE(ops::testing::output_bytes(several, *op_case) == expected)
          << op_case->op << " " << op_case->name << " with " << pool->threads() << " threads";
    }
  }
}

std::string test_name(const testing::TestParamInfo<Choice>& info) {
  std::string text = info.param.op + "_" + info.param.implementation;
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpTable, testing::ValuesIn(choices()), test_name);

TEST(OpTableCoverage, EveryBackwardHasAGradientCheck) {
  std::set<std::string> checked;
  std::set<std::string> wanted;
  for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
    if (op_case.op.find("_backward") != std::string::npos) wanted.insert(op_case.op);
    if (!op_case.gradients.empty()) checked.insert(op_case.op);
  }
  for (const std::string& op : wanted) EXPECT_TRUE(checked.count(op)) << op;
}

TEST(OpTableCoverage, EveryOpCanBeTimed) {
  ops::Registry registry;
  cpu::register_ops(registry);
  for (const ops::Registry::Listing& listing : registry.listings()) {
    bool timed = false;
    for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
      timed = timed || (op_case.op == listing.op && op_case.timing_only && op_case.flops + op_case.bytes > 0);
    }
    EXPECT_TRUE(timed) << listing.op << " has no timing_only case";
  }
}

}  // namespace
}  // namespace ingot
