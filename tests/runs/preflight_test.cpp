#include "runs/preflight.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/locations.h"

namespace ingot::runs {
namespace {

// Two nodes of two ranks, with nothing wrong.
Preflight good() {
  Preflight result;
  for (int i = 0; i < 4; ++i)
    result.ranks.push_back({i < 2 ? "left" : "right", "cuda:" + std::to_string(i % 2), "0-7", 5e14,
                            i % 2 == 0 ? "CPUs 0-3, near mlx5_0" : "CPUs 4-7"});
  result.axes = {{.name = "dp",
                  .ranks = 2,
                  .across_nodes = true,
                  .by = "NCCL 2.28.3",
                  .latency_s = 2e-5,
                  .bus_bytes_per_s = 4e10,
                  .median_bytes_per_s = 4e10,
                  .slowest = 3,
                  .bytes = 1 << 24},
                 {.name = "tp",
                  .ranks = 2,
                  .by = "NCCL 2.28.3",
                  .latency_s = 1e-5,
                  .bus_bytes_per_s = 3e11,
                  .median_bytes_per_s = 3e11,
                  .slowest = 1,
                  .bytes = 1 << 24}};
  result.links = {{0, false, 1e10}, {1, true, 5e9}, {2, false, 1e10}};
  return result;
}

const MachineFile machine{.name = "big", .devices = 8, .link_gb_s = 450, .network_gb_s = 400};

// The checks with advice.
std::set<std::string> wrong(const Preflight& result) {
  std::set<std::string> checks;
  for (const PreflightFinding& each : findings_of(result, machine)) {
    if (!each.advice.empty()) checks.insert(each.check + ": " + each.advice);
  }
  return checks;
}

std::string message(const Preflight& result, const std::string& check, bool last = false) {
  std::string found;
  for (const PreflightFinding& each : findings_of(result, machine)) {
    if (each.check == check && (found.empty() || last)) found = each.message;
  }
  return found;
}

TEST(Preflight, DescribesRanksAxesAndLinks) {
  const Preflight result = good();
  EXPECT_EQ(wrong(result), std::set<std::string>());
  EXPECT_EQ(message(result, "binding"), "left: rank 0 on cuda:0: CPUs 0-3, near mlx5_0; rank 1 on cuda:1: CPUs 4-7");
  EXPECT_EQ(message(result, "ranks"),
            "left: 2 ranks, 0 to 1 from cuda:0 on, CPUs 0-7; right: 2 ranks, 2 to 3 from "
            "cuda:0 on, CPUs 0-7");
  EXPECT_EQ(message(result, "dp"),
            "groups of 2 ranks across nodes, by NCCL 2.28.3: all-reduce of 16 MiB at 40 GB/s, "
            "of 8 bytes in 20 us, 80 % of big's link");
  EXPECT_EQ(message(result, "links", true),
            "1 of neighbours across nodes, through host memory: 5 GB/s; the slowest is "
            "rank 1 on left to rank 2 on right, 5 GB/s");
}

TEST(Preflight, NamesWhatIsSlow) {
  Preflight result = good();
  result.ranks[2].flops = 3.9e14;  // 78 % of the median
  result.axes[0].bus_bytes_per_s = 1.9e10;
  result.axes[1].bus_bytes_per_s = result.axes[1].median_bytes_per_s = 2e11;  // all of them: by the machine file
  result.links[0].bytes_per_s = 4e9;
  EXPECT_NE(message(result, "compute").find("the slowest is rank 2 on right, 390"), std::string::npos)
      << message(result, "compute");
  const std::set<std::string> found = wrong(result);
  EXPECT_EQ(found.size(), 4U);
  EXPECT_TRUE(
      found.contains("dp: the group of rank 3 on right is slower than the median of 40 GB/s: look at its links"));
  EXPECT_TRUE(
      found.contains("tp: big has 450 GB/s a device: check that the fabric is used (NCCL_DEBUG=INFO says how "
                     "ranks are connected)"));
  EXPECT_NE(message(result, "links").find("rank 0 on left to rank 1 on left, 4 GB/s"), std::string::npos);
}

TEST(Preflight, MeasuresTheRanksOfARecipe) {
  train::Recipe recipe = train::read_recipe(
      std::filesystem::path(source_root) / "recipes/tiny.yaml",
      std::vector<std::string>{"eval.prompts=[]", "parallel.dp=2", "parallel.tp=2", "threads=4", "device=cpu"});
  int reports = 0;
  check_ranks(recipe, [&](const Preflight& result) {
    ++reports;
    ASSERT_EQ(result.ranks.size(), 4U);
    for (const PreflightRank& rank : result.ranks) {
      EXPECT_EQ(rank.device, "cpu");
      EXPECT_GT(rank.flops, 0);
    }
    ASSERT_EQ(result.axes.size(), 2U);
    EXPECT_EQ(result.axes[0].name + result.axes[1].name, "dptp");
    for (const PreflightAxis& axis : result.axes) {
      EXPECT_EQ(axis.ranks, 2);
      EXPECT_FALSE(axis.across_nodes);
      EXPECT_GT(axis.bus_bytes_per_s, 0);
      EXPECT_GT(axis.latency_s, 0);
    }
    ASSERT_EQ(result.links.size(), 3U);
    for (const PreflightLink& link : result.links) EXPECT_GT(link.bytes_per_s, 0);
    EXPECT_EQ(findings_of(result, std::nullopt).size(), 5U);
  });
  EXPECT_EQ(reports, 1);
}

}  // namespace
}  // namespace ingot::runs
