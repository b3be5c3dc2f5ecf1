#include "ops/sum_parts.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tests/ops/expect_internal.h"

namespace ingot {
namespace {

// On a CPU; other sums are in the op table.
TEST(SumParts, AnOverflowOfIntegersIsAnError) {
  const std::unique_ptr<Device> device = cpu::make_device();
  ops::Registry registry;
  cpu::register_ops(registry);
  ThreadPool threads(2);
  Arena scratch(*device, 0, "scratch");
  ops::Context context{*device, registry, scratch, &threads};
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> sum = {most - 1, 5}, part = {1, -7};
  const Tensor y{sum.data(), DType::i64, Shape{2}, device.get()};
  const Tensor parts{part.data(), DType::i64, Shape{1, 2}, device.get()};
  ops::sum_parts(context, y, parts, true);
  EXPECT_EQ(sum, (std::vector<int64_t>{most, -2}));
  expect_internal([&] { ops::sum_parts(context, y, parts, true); }, "overflows int64");
}

}  // namespace
}  // namespace ingot
