// Dispatch runs the first implementation that accepts a call. Refusal reasons are formatted only when none does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/elementwise.h"
#include "ops/registry.h"

namespace ingot {
namespace {

// An argument that counts how often it is formatted.
struct Costly {
  int* formatted;
};

int formatted = 0;
std::vector<std::string> calls;

}  // namespace
}  // namespace ingot

template <>
struct fmt::formatter<ingot::Costly> : fmt::formatter<int> {
  template <class Context>
  auto format(const ingot::Costly& costly, Context& context) const {
    return fmt::formatter<int>::format(++*costly.formatted, context);
  }
};

namespace ingot {
namespace {

void first(ops::Context&, const Tensor&, const Tensor&, const Tensor&) { calls.push_back("first"); }
void second(ops::Context&, const Tensor&, const Tensor&, const Tensor&) { calls.push_back("second"); }
bool odd(const ops::Context&, const Tensor& y, const Tensor&, const Tensor&, ops::Refusal refuse) {
  return y.elements() % 2 != 0 && refuse("{} elements are odd, as is {}", y.elements(), Costly{&formatted});
}
bool large(const ops::Context&, const Tensor& y, const Tensor&, const Tensor&, ops::Refusal refuse) {
  return y.elements() > 4 && refuse("supports 4 elements");
}

class Dispatch : public testing::Test {
 protected:
  Dispatch() {
    formatted = 0;
    calls.clear();
    registry_.add<ops::Add>(DeviceKind::cpu, "pairs", first, odd);
    registry_.add<ops::Add>(DeviceKind::cpu, "small", second, large);
  }

  void add(const ops::Registry& registry, int64_t elements) {
    ops::Context context{*device_, registry, scratch_, nullptr};
    const Tensor x = memory_.view(DType::f32, {elements});
    ops::add(context, x, x, x);
  }
  std::string refusal(int64_t elements) {
    try {
      add(registry_, elements);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      return error.message();
    }
    return "accepted";
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  Buffer memory_{*device_, 64};
  Arena scratch_;
  ops::Registry registry_;
};

TEST_F(Dispatch, TheFirstAcceptingImplementationRunsWithoutFormatting) {
  add(registry_, 2);
  add(registry_, 3);
  EXPECT_EQ(calls, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(formatted, 0);
}

TEST_F(Dispatch, ARefusedCallNamesEveryImplementationWithItsReason) {
  EXPECT_EQ(refusal(5),
            "no implementation of add on cpu supports this call; pairs: 5 elements are odd, as is 1; small: supports 4 "
            "elements");
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(formatted, 1);
}

TEST_F(Dispatch, WithoutImplementationsTheErrorSaysSo) {
  registry_ = {};
  EXPECT_EQ(refusal(1), "no implementation of add on cpu supports this call; none is registered");
}

TEST_F(Dispatch, SelectionForcesOneImplementation) {
  registry_.select_implementation("add=small");
  add(registry_, 2);
  EXPECT_EQ(calls, (std::vector<std::string>{"second"}));
  EXPECT_EQ(refusal(6), "no implementation of add on cpu supports this call; small: supports 4 elements");
  try {
    registry_.select_implementation("add=pairs");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.hint(), "available: small");
  }
  EXPECT_THROW(registry_.select_implementation("sum=small"), Error);
}

TEST_F(Dispatch, WithoutKernelsTheSameCallsAreDeclined) {
  const ops::Registry hollow = registry_.without_kernels();
  add(hollow, 2);
  add(hollow, 3);
  EXPECT_TRUE(calls.empty());
  EXPECT_THROW(add(hollow, 5), Error);
}

TEST(OpList, EveryOpHasAnImplementationOnTheCpu) {
  ops::Registry registry;
  cpu::register_ops(registry);
  EXPECT_EQ(registry.listings().size(), ops::num_ops);
}

}  // namespace
}  // namespace ingot
