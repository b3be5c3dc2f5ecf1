// The memory that a run's plan states.
#include "runs/plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "ops/matmul_bytes.h"
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
    if (runtime.device->host_visible()) EXPECT_EQ(planned.memory.workspace, runtime.threads->workspace_bytes());
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

TEST_F(PlanTest, CountsTheWorkspaceOfLibrariesOnGpus) {
  const MemoryPlan memory = plan("sim32", 2).memory;
  EXPECT_EQ(memory.workspace, ops::matmul_library_bytes);
  EXPECT_NE(memory.table().find("library workspace"), std::string::npos) << memory.table();
}

// With determinism: fast bits may depend on the micro-batch. A run that goes on keeps it, as far as it fits, whatever
// memory is free now.
TEST_F(PlanTest, KeepsTheMicroBatchOfARunThatGoesOn) {
  recipe_.batch.global = 8;
  const auto micro = [&](const char* device, size_t available, std::optional<int64_t> recorded) {
    const runtime::Runtime runtime = runtime::open_runtime(device, 1);
    const RunPlan plan = size_run(recipe_, model_, placeholder_statistics(32), 0, {}, available, runtime, {}, recorded);
    EXPECT_TRUE(plan.micro_batch_auto);
    return *plan.recipe.batch.micro.value;
  };
  constexpr size_t ample = size_t{1} << 40;
  EXPECT_EQ(micro("sim32", ample, {}), 8);
  EXPECT_EQ(micro("sim32", ample, 3), 3);
  EXPECT_EQ(micro("sim32", ample, 16), 8) << "more than there are";
  EXPECT_EQ(micro("sim32", 1, 3), 1) << "as much as fits";
  recipe_.determinism = train::Determinism::bitwise;
  EXPECT_EQ(micro("sim32", ample, 3), 8) << "no bit depends on it";
}

// A stage of a pipeline has its part of the weights' state, as many activations as its schedule keeps, and messages.
TEST_F(PlanTest, CountsAStageOfAPipeline) {
  model_.layers = spec::repeated(8, model_.layers.front());
  recipe_.batch.global = 64;
  recipe_.parallel.pp = 4;
  const runtime::Runtime runtime = runtime::open_runtime("cpu", 1);
  const auto planned = [&](const train::ShardSpec& share, size_t available = size_t{1} << 40) {
    return size_run(recipe_, model_, placeholder_statistics(32), 0, {}, available, runtime, share);
  };
  const RunPlan whole = planned({});
  EXPECT_EQ(whole.memory.step.messages, 0U);
  size_t moments = 0, first_saved = 0;
  for (int rank = 0; rank < 4; ++rank) {
    train::ShardSpec share;
    share.shards = spec::pipeline_shards(recipe_.parallel.schedule, 4, 1, rank);
    const RunPlan stage = planned(share);
    moments += stage.memory.optimizer_state.moments;
    // Four micro-batches for each stage.
    EXPECT_EQ(*stage.recipe.batch.micro.value, 4);
    EXPECT_NE(stage.micro_batch_reason.find("4 stages"), std::string::npos) << stage.micro_batch_reason;
    EXPECT_EQ(*stage.recipe.parallel.chunks.value, 1);
    EXPECT_GT(stage.memory.step.messages, 0U);
    EXPECT_NE(stage.memory.table().find("pipeline's messages"), std::string::npos) << stage.memory.table();
    EXPECT_EQ(stage.trainable_parameters, whole.trainable_parameters);
    if (rank == 0) first_saved = stage.memory.step.saved;
    if (rank == 3) EXPECT_LT(stage.memory.step.saved, first_saved / 2);  // one micro-batch, not four
  }
  EXPECT_EQ(moments, whole.memory.optimizer_state.moments);
  // Messages are device memory, and where they go through host memory as much of that.
  const runtime::Runtime simulated = runtime::open_runtime("sim32", 1);
  train::ShardSpec second;
  second.shards = spec::pipeline_shards(recipe_.parallel.schedule, 4, 1, 1);
  for (const bool staged : {false, true}) {
    MemoryPlan memory =
        size_run(recipe_, model_, placeholder_statistics(32), 0, {.staged = staged}, size_t{1} << 40, simulated, second)
            .memory;
    EXPECT_GT(memory.step.messages, 0U);
    EXPECT_EQ(memory.on_host(), staged ? memory.step.messages : 0);
    const size_t total = memory.total();
    EXPECT_EQ(total - std::exchange(memory.step.messages, 0), memory.total());
  }
  recipe_.parallel.pp = 9;
  train::ShardSpec share;
  share.shards = spec::pipeline_shards(recipe_.parallel.schedule, 9, 1, 0);
  EXPECT_THROW(planned(share), Error);  // more than blocks
}

}  // namespace
}  // namespace ingot::runs
