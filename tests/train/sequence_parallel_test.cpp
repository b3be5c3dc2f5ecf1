// Training steps in which tensor-parallel ranks share the rows of norms and of the residual: the losses, gradients and
// weights of one rank, to rounding, or in slices with its bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/layouts.h"
#include "train/memory_probe.h"

namespace ingot::train {
namespace {

using enum spec::PipelineScheduleName;

// Two ranks of each, with all but the weights divided.
const Layout sharded = {.tp = 2,
                        .stages = 1,
                        .dp = 2,
                        .zero = 2,
                        .visible = false,
                        .recompute = spec::Recompute::full,
                        .sequence_parallel = true};

class SequenceParallelTraining : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(SequenceParallelTraining, EqualsOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  settings.step.optimizer.clip_grad_norm = 0.5;
  std::vector<Layout> layouts = {
      {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .sequence_parallel = true},
      sharded,
      {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .sequence_parallel = true},
      {.tp = 2, .stages = 1, .dp = 2, .zero = 3, .recompute = spec::Recompute::selective, .sequence_parallel = true}};
  if (models::can_be_cut(settings.spec, {.tp = 4}))
    layouts.push_back({.tp = 4, .stages = 1, .dp = 1, .zero = 0, .sequence_parallel = true});
  compare(settings, layouts, GetParam().name, rounding_of(settings.spec));
}

TEST_P(SequenceParallelTraining, AdaptersEqualOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .lora = small_lora(), .threads = 1};
  const auto is_cut_at_4 = [](const spec::LayerSpec& layer) { return spec::dense_of(layer.mlp).features % 8 == 0; };
  if (std::ranges::all_of(settings.spec.layers, is_cut_at_4)) settings.lora->dropout = 0.2;
  settings.types.optimizer = OptimizerName::sgd;
  compare(settings,
          {{.tp = 2, .stages = 1, .dp = 1, .zero = 0, .sequence_parallel = true},
           {.tp = 2, .stages = 2, .dp = 1, .zero = 1, .schedule = zb_h1, .sequence_parallel = true}},
          GetParam().name, rounding_of(settings.spec));
}

INSTANTIATE_TEST_SUITE_P(Families, SequenceParallelTraining, testing::ValuesIn(cut_families()),
                         [](const auto& info) { return info.param.name; });

class SequenceParallelSlices : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(SequenceParallelSlices, HaveTheBitsOfOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1, .slices = max_slices(GetParam().spec)};
  std::vector<Layout> layouts = {
      {.tp = settings.slices, .stages = 1, .dp = 1, .zero = 0, .sequence_parallel = true},
      sharded,
      {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .sequence_parallel = true}};
  if (settings.slices == 4)
    layouts.push_back({.tp = 2, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .sequence_parallel = true});
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    settings.weights = settings.step.activation = adapter ? DType::f32 : DType::bf16;
    compare_bits(settings, layouts, fmt::format("{}, {}", GetParam().name, adapter ? "adapter" : "full"));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SequenceParallelSlices, testing::ValuesIn(sliced_families()),
                         [](const auto& info) { return info.param.name; });

// With context-parallel ranks; micro-batches and accumulation units that ranks' rows cut; bf16.
TEST(SequenceParallel, EqualsOneRankInOtherSettings) {
  SmallRun::Settings settings{.threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  const std::vector<Layout> layouts = {{.tp = 4, .stages = 1, .dp = 1, .zero = 0, .sequence_parallel = true},
                                       {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .sequence_parallel = true}};
  settings.step.micro = 3;
  compare(settings, layouts, "three sequences", rounding_of(settings.spec));
  settings.step.micro = 1;
  settings.step.accumulation_unit = 2;
  compare(settings, layouts, "units of two sequences", rounding_of(settings.spec));
  settings.step.accumulation_unit = 1;
  settings.weights = settings.step.activation = DType::bf16;
  compare(settings, layouts, "bf16", tolerance(DType::bf16, 24));
}

// A first step's losses have the bits of tensor-parallel ranks that all have all rows: sums are added in one order.
TEST(SequenceParallel, HasTheLossesOfTensorParallelRanks) {
  const Layout layout{.tp = 2, .stages = 1, .dp = 1, .zero = 0};
  Layout shared = layout;
  shared.sequence_parallel = true;
  for (const bool fp8 : {false, true}) {
    for (const models::FamilyCase& family : cut_families()) {
      SmallRun::Settings settings{.spec = family.spec, .weights = DType::bf16, .threads = 1};
      settings.step.activation = DType::bf16;
      settings.step.fp8 = fp8;
      Outcome all, own;
      train(all, settings, layout, 1);
      train(own, settings, shared, 1);
      EXPECT_EQ(own.losses, all.losses) << family.name << (fp8 ? ", fp8" : "");
    }
  }
}

// The step's allocations equal the prediction, and what is saved of norms and of the residual is halved.
TEST(SequenceParallel, TakesThePredictedMemory) {
  constexpr int64_t tokens = 32;
  for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    std::array<size_t, 2> saved{};
    for (const bool sequence_parallel : {false, true}) {
      SmallRun::Settings settings{.threads = 1};
      settings.step.sequence_length = tokens;
      const Layout layout{
          .tp = 2, .stages = 1, .dp = 1, .zero = 0, .recompute = recompute, .sequence_parallel = sequence_parallel};
      comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
        SmallRun::Settings own = laid_out(settings, layout);
        own.ranks = world;
        SmallRun run(own);
        const ShardSpec& share = run.optimizer_state->share();
        const StepBytes bytes =
            Step::bytes(run.spec, own.step, 0, 0, false, 1, run.optimizer_state->update_bytes(), true, share);
        EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch + bytes.messages);
        run_step(run, 1);
        EXPECT_EQ(run.step->peak().saved, bytes.saved);
        EXPECT_GE(run.step->peak().scratch, bytes.scratch / 2);
        if (world.rank() == 0) saved[sequence_parallel ? 1 : 0] = bytes.saved;
      });
    }
    // Of every block its input and, unless recomputed, the outputs of two norms, their statistics and the residual
    // between attention and MLP; after the last block the residual, its gradient, and the final norm's results. With
    // full recomputation, one block's are in memory at a time.
    const spec::ModelSpec spec = small_spec();
    const auto blocks = static_cast<size_t>(spec.num_layers());
    const size_t matrix = tokens * static_cast<size_t>(spec.hidden) * sizeof(float);
    const size_t statistic = tokens * sizeof(float);
    const size_t inside = 3 * matrix + 2 * statistic, kept = matrix + 2 * statistic;
    const size_t in_blocks = recompute == spec::Recompute::none   ? blocks * inside
                             : recompute == spec::Recompute::full ? inside
                                                                  : blocks * kept + 2 * matrix;
    const size_t divided = blocks * matrix + in_blocks + 3 * matrix + statistic;
    EXPECT_EQ(saved[0] - saved[1], divided / 2) << spec::name(recompute);
  }
}

// A probe computes one rank's part alone; then they train as without it.
TEST(SequenceParallel, MemoryProbesDoNotCommunicate) {
  SmallRun::Settings settings =
      laid_out({.threads = 1}, {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .sequence_parallel = true});
  settings.step.micro = 1;
  Outcome expected;
  train(expected, settings, {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .sequence_parallel = true}, 1);
  comm::run_in_process({.ranks = 4, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = settings;
    own.ranks = world;
    SmallRun run(own);
    const ProbedStep tried = run.probe(3, world.rank() == 3, run.sequences(sequences));
    EXPECT_EQ(tried.step->settings().micro, 1);
    EXPECT_NE(tried.shortage, "");
    const StepResult result = tried.step->run(1, 1e-2, run.sequences(sequences), SmallRun::samples(sequences));
    EXPECT_NEAR(result.loss, expected.losses.front(), 1e-6);
  });
}

}  // namespace
}  // namespace ingot::train
