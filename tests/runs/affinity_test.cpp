#include "runs/affinity.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/base/error_of.h"

namespace ingot::runs {
namespace {

using Parts = std::vector<std::vector<int>>;

// Two nodes of four cores with two threads each; CPUs 8 to 15 are the second threads.
std::vector<CpuPlace> two_nodes() {
  std::vector<CpuPlace> places;
  for (const int node : {0, 1}) {
    for (int core = 4 * node; core < 4 * node + 4; ++core) places.push_back({core, core, node});
    for (int core = 4 * node; core < 4 * node + 4; ++core) places.push_back({core + 8, core, node});
  }
  return places;
}

TEST(Affinity, DividesTheCoresOfEachGpusNode) {
  const std::vector<int> nodes = {1, 1, 0, 1};
  EXPECT_EQ(divide_cores(two_nodes(), nodes), (Parts{{4, 5}, {6}, {0, 1, 2, 3}, {7}}));
}

TEST(Affinity, DividesAllCoresIfARankHasNoGpuOrItsNodeNoCores) {
  for (const int other : {-1, 2}) {
    const std::vector<int> nodes = {1, other, 0};
    EXPECT_EQ(divide_cores(two_nodes(), nodes), (Parts{{0, 1, 2}, {3, 4, 5}, {6, 7}})) << other;
  }
  EXPECT_EQ(divide_cores(two_nodes(), std::vector<int>{-1}), (Parts{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(Affinity, RefusesMoreRanksThanCores) {
  const std::vector<CpuPlace> one_core = {{2, 2, 0}, {10, 2, 0}};
  const Error error = error_of([&] { divide_cores(one_core, std::vector<int>{0, 0}); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(error.message(), "affinity: auto: 2 ranks cannot be bound to 1 cores of NUMA node 0");
}

}  // namespace
}  // namespace ingot::runs
