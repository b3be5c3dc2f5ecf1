// What a step of each job of tools/gpu_check asks of a GPU does not become more than tools/gpu_budgets.tsv says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "spec/flops.h"
#include "tests/bench/gpu_jobs.h"
#include "tests/locations.h"
#include "tests/sanitized.h"

namespace ingot::bench {

static void PrintTo(const GpuJob& job, std::ostream* out) { *out << job.name; }  // found by GoogleTest

namespace {

std::string table_path() { return std::string(source_root) + "/tools/gpu_budgets.tsv"; }

BudgetTable committed() {
  std::ifstream file(table_path());
  std::stringstream text;
  text << file.rdbuf();
  return read_budgets(text.str());
}

// All of them; under sanitizers, where drawing the adapters' random weights takes long, those without adapters.
std::vector<GpuJob> tested_jobs() {
  std::vector<GpuJob> jobs = gpu_jobs();
  if (sanitized) std::erase_if(jobs, [](const GpuJob& job) { return job.train.rank.has_value(); });
  return jobs;
}

class GpuBudgets : public testing::TestWithParam<GpuJob> {};

// `INGOT_WRITE_DOCS=1 test_bench --gtest_filter=*GpuBudgets*` writes the table.
TEST_P(GpuBudgets, HoldForEveryJob) {
  const JobBudget now = budget_of(GetParam());
  BudgetTable table = committed();
  if (std::getenv("INGOT_WRITE_DOCS") != nullptr) {
    table[now.job] = now;
    std::ofstream(table_path()) << text_of(table);
  }
  ASSERT_TRUE(table.contains(now.job));
  EXPECT_EQ(worse(now, table.at(now.job)), "")
      << "where this is intended: INGOT_WRITE_DOCS=1 build/release/tests/test_bench --gtest_filter='*GpuBudgets*' "
         "writes tools/gpu_budgets.tsv";
}

INSTANTIATE_TEST_SUITE_P(Jobs, GpuBudgets, testing::ValuesIn(tested_jobs()),
                         [](const testing::TestParamInfo<GpuJob>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

// Attention's backward pass computes the scores again: five gemms instead of the four that a model's FLOPs count.
TEST(GpuJobs, HaveTheFlopsOfTheirModels) {
  for (const GpuJob& job : gpu_jobs()) {
    if (job.train.model.empty() || job.train.rank) continue;
    const spec::ModelSpec model = bench_spec(job.train.model);
    const auto length = static_cast<double>(job.train.sequence), sequences = static_cast<double>(job.train.global);
    const spec::AttentionSquares squares{sequences * length, sequences * length * length};
    const double expected = spec::training_flops(model, squares, spec::AttentionCount::causal) +
                            0.5 * spec::attention_flops(model, squares, spec::AttentionCount::causal);
    EXPECT_NEAR(budget_of(job).flops() / expected, 1, 1e-3) << job.name;
  }
}

TEST(GpuBudgetTable, HasTheJobsAndNoOthers) {
  BudgetTable table = committed();
  for (const GpuJob& job : gpu_jobs()) EXPECT_EQ(table.erase(job.name), 1U) << job.name;
  EXPECT_TRUE(table.empty());
}

JobBudget small_budget() {
  JobBudget budget{"small", "H200", "sm_90", 8, 1000};
  budget.rows = {{"-", copy_to_host, "-", 0, 0, 1, 4, 0}, {"add", "add_f32", "2", 256, 16, 3, 300, 60}};
  return budget;
}

TEST(GpuBudgetTable, IsReadAsItWasWritten) {
  const BudgetTable table{{"small", small_budget()}};
  EXPECT_EQ(text_of(read_budgets(text_of(table))), text_of(table));
  EXPECT_THROW(read_budgets("job\tsmall\n"), Error);
  EXPECT_THROW(read_budgets("job\tsmall\tH200\tsm_90\tmany\t0\n"), Error);
}

TEST(GpuBudgetTable, NamesWhatBecameWorse) {
  const JobBudget then = small_budget();
  EXPECT_EQ(worse(then, then), "");
  JobBudget now = then;
  ++now.rows[1].launches;
  EXPECT_EQ(worse(now, then), "small: launches 3 -> 4\n");
  EXPECT_EQ(worse(then, now), "");
  now = then;
  now.rows[0].launches = 2;
  now.rows[0].bytes = 8;
  now.rows[1].flops = 61;
  now.memory = 1001;
  EXPECT_EQ(worse(now, then),
            "small: copies between host and device 1 -> 2\nsmall: bytes 304 -> 308\nsmall: FLOPs 60 -> 61\n"
            "small: bytes of memory 1000 -> 1001\n");
}

}  // namespace
}  // namespace ingot::bench
