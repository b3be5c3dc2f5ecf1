// The memory that a run's plan states.
#include "runs/plan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/cpu/cpu_device.h"
#include "tests/base/scratch.h"

namespace ingot::runs {
namespace {

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    model_.family = "llama";
    model_.vocab = 40;
    model_.hidden = 16;
    model_.context = 64;
    spec::LayerSpec layer;
    layer.attention.heads = 4;
    layer.attention.kv_heads = 2;
    layer.attention.head_dim = 8;
    layer.mlp = spec::Dense{.features = 24};
    model_.layers = spec::repeated(3, layer);
    const std::filesystem::path path = scratch_ / "recipe.yaml";
    std::ofstream(path) << "name: run\nmodel: m\ndata: {train: t.jsonl, sequence_length: 32}\nsteps: 5\n";
    recipe_ = train::read_recipe(path, {});
  }
  RunPlan plan(const std::string& device, int64_t threads) const {
    const runtime::Runtime runtime = runtime::open_runtime(device, threads);
    RunPlan planned = size_run(recipe_, model_, placeholder_statistics(32), 0, {}, size_t{1} << 40, runtime);
    EXPECT_EQ(planned.memory.workspace, runtime.threads->workspace_bytes());
    return planned;
  }

  Scratch scratch_;
  spec::ModelSpec model_;
  train::Recipe recipe_;
};

// The pool's workspace is what was allocated for it, a part for each thread, and a line of the table.
TEST_F(PlanTest, CountsTheWorkspaceOfTheCpusThreads) {
  const WorkspaceBytes each = cpu::workspace_bytes(cpu::best_isa());
  for (const int64_t threads : {1, 3}) {
    const MemoryPlan memory = plan("cpu", threads).memory;
    EXPECT_EQ(memory.workspace, static_cast<size_t>(threads) * each.per_thread + each.shared);
    MemoryPlan without = memory;
    without.workspace = 0;
    EXPECT_EQ(memory.total() - without.total(), memory.workspace);
    EXPECT_NE(memory.table().find("CPU workspace"), std::string::npos) << memory.table();
  }
}

TEST_F(PlanTest, HasNoWorkspaceOnGpus) {
  const MemoryPlan memory = plan("sim32", 2).memory;
  EXPECT_EQ(memory.workspace, 0U);
  EXPECT_EQ(memory.table().find("CPU workspace"), std::string::npos) << memory.table();
}

}  // namespace
}  // namespace ingot::runs
