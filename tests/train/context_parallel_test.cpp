// Training steps with the tokens of sequences divided over ranks: the losses, gradients and weights of one rank, to
// rounding, in any mix with the other kinds of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/layouts.h"
#include "train/memory_probe.h"
#include "train/recipe.h"

namespace ingot::train {
namespace {

using enum spec::PipelineScheduleName;
using enum spec::CpCommType;

SmallRun::Settings with_sgd(const spec::ModelSpec& spec) {
  SmallRun::Settings settings{.spec = spec, .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  return settings;
}

class ContextParallelTraining : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(ContextParallelTraining, EqualsOneRank) {
  SmallRun::Settings settings = with_sgd(GetParam().spec);
  settings.step.optimizer.clip_grad_norm = 0.5;
  std::vector<Layout> layouts = {
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2},
      {.tp = 1, .stages = 1, .dp = 2, .zero = 2, .visible = false, .recompute = spec::Recompute::full, .cp = 2},
      {.tp = 1, .stages = 1, .dp = 1, .zero = 3, .recompute = spec::Recompute::selective, .cp = 2},
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .cp_comm_type = allgather},
      {.tp = 1,
       .stages = 1,
       .dp = 1,
       .zero = 3,
       .visible = false,
       .recompute = spec::Recompute::full,
       .cp = 3,
       .cp_comm_type = allgather},
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 3, .cp_comm_type = p2p},
      {.tp = 1,
       .stages = 1,
       .dp = 1,
       .zero = 3,
       .visible = false,
       .recompute = spec::Recompute::full,
       .cp = 2,
       .cp_comm_type = p2p}};
  if (models::can_be_cut(settings.spec, {.pp = 2}))
    layouts.push_back({.tp = 1, .stages = 2, .dp = 1, .zero = 1, .schedule = zb_h1, .cp = 2});
  compare(settings, layouts, GetParam().name, rounding_of(settings.spec));
}

TEST_P(ContextParallelTraining, AdaptersEqualOneRank) {
  SmallRun::Settings settings = with_sgd(GetParam().spec);
  settings.lora = small_lora();
  settings.lora->dropout = 0.2;
  compare(settings,
          {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2},
           {.tp = 1, .stages = 1, .dp = 2, .zero = 1, .cp = 2},
           {.tp = 1, .stages = 1, .dp = 1, .zero = 1, .cp = 2, .cp_comm_type = allgather},
           {.tp = 1, .stages = 1, .dp = 1, .zero = 1, .cp = 2, .cp_comm_type = p2p}},
          GetParam().name, rounding_of(settings.spec));
}

class ContextParallelSlices : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(ContextParallelSlices, HaveTheBitsOfOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1, .slices = max_slices(GetParam().spec)};
  std::vector<Layout> layouts = {
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2},
      {.tp = 1, .stages = 1, .dp = 2, .zero = 2, .visible = false, .recompute = spec::Recompute::full, .cp = 2}};
  if (settings.slices == 4) layouts.push_back({.tp = 2, .stages = 1, .dp = 1, .zero = 3, .cp = 2});
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    if (adapter) settings.lora->dropout = 0.2;
    settings.weights = settings.step.activation = adapter ? DType::bf16 : DType::f32;
    compare_bits(settings, layouts, fmt::format("{}, {}", GetParam().name, adapter ? "adapter" : "full"));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ContextParallelSlices, testing::ValuesIn(sliced_families()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Families, ContextParallelTraining, testing::ValuesIn(models::family_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ContextParallel, IsTriedWithEveryKindOfAttention) {
  bool alibi = false, window = false, softcap = false, norm = false, fused = false, grouped = false;
  for (const models::FamilyCase& family : sliced_families()) {
    for (const spec::LayerSpec& layer : family.spec.layers) {
      const spec::Attention& attention = layer.attention;
      alibi = alibi || attention.alibi;
      window = window || attention.window > 0;
      softcap = softcap || attention.softcap > 0;
      norm = norm || attention.qk_norm != spec::QkNorm::none;
      fused = fused || attention.fused_qkv;
      grouped = grouped || attention.kv_heads < attention.heads;
    }
  }
  EXPECT_TRUE(alibi && window && softcap && norm && fused && grouped)
      << alibi << window << softcap << norm << fused << grouped;
}

// Micro-batches of one sequence and of three; the first two layouts also with accumulation units of two.
void compare_micro_batches(SmallRun::Settings settings, const std::vector<Layout>& layouts) {
  compare(settings, layouts, "fp32", rounding_of(settings.spec));
  settings.step.micro = 3;
  compare(settings, layouts, "three sequences", rounding_of(settings.spec));
  settings.step.micro = 1;
  settings.step.accumulation_unit = 2;
  settings.step.optimizer.clip_grad_norm = 0.5;
  compare(settings, {layouts.begin(), layouts.begin() + 2}, "units of two sequences", rounding_of(settings.spec));
}

// Four ranks, whose parts begin and end within sequences, sub-sequences and micro-batches; with tensor-parallel ranks;
// in bf16.
TEST(ContextParallel, EqualsOneRankInOtherSettings) {
  SmallRun::Settings settings = with_sgd(small_spec());
  for (spec::LayerSpec& layer : settings.spec.layers) layer.attention.kv_heads = 4;
  const std::vector<Layout> layouts = {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 4},
                                       {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .cp = 2},
                                       {.tp = 2, .stages = 2, .dp = 1, .zero = 1, .cp = 2},
                                       {.tp = 1, .stages = 1, .dp = 3, .zero = 1, .cp = 2}};
  compare_micro_batches(settings, layouts);
  settings.step.optimizer.clip_grad_norm = 0.5;
  settings.weights = settings.step.activation = DType::bf16;
  compare(settings, {layouts.begin(), layouts.begin() + 2}, "bf16", tolerance(DType::bf16, 24));
}

// Ranks that have two chunks of the rows and all heads.
class ContextParallelChunks : public testing::TestWithParam<spec::CpCommType> {};
INSTANTIATE_TEST_SUITE_P(Types, ContextParallelChunks, testing::Values(allgather, p2p),
                         [](const auto& info) { return name(info.param); });

// As above, with six ranks for four heads; chunks that begin and end within sub-sequences; one key/value head; with
// sequence parallelism and a deferred schedule.
TEST_P(ContextParallelChunks, EqualOneRankInOtherSettings) {
  SmallRun::Settings settings = with_sgd(small_spec());
  const std::vector<Layout> layouts = {
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 6, .cp_comm_type = GetParam()},
      {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .cp = 3, .sequence_parallel = true, .cp_comm_type = GetParam()},
      {.tp = 2, .stages = 2, .dp = 1, .zero = 1, .schedule = zb_h1, .cp = 2, .cp_comm_type = GetParam()},
      {.tp = 1,
       .stages = 1,
       .dp = 3,
       .zero = 1,
       .recompute = spec::Recompute::selective,
       .cp = 2,
       .cp_comm_type = GetParam()}};
  compare_micro_batches(settings, layouts);
  settings.step.optimizer.clip_grad_norm = 0.5;
  for (spec::LayerSpec& layer : settings.spec.layers) layer.attention.kv_heads = 1;
  compare(settings, {layouts[0]}, "one key/value head", rounding_of(settings.spec));
  settings.weights = settings.step.activation = DType::bf16;
  compare(settings, {layouts.begin(), layouts.begin() + 2}, "bf16", tolerance(DType::bf16, 24));
}

// Sequences longer than the blocks of attention's kernels, with windows shorter and longer than a rank's chunk.
TEST_P(ContextParallelChunks, EqualOneRankInLongSequences) {
  SmallRun::Settings settings = with_sgd(small_spec());
  settings.step.sequence_length = 600;
  settings.spec.context = 600;
  settings.spec.layers[1].attention.window = 40;
  settings.spec.layers[2].attention.window = 300;
  compare(settings,
          {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .cp_comm_type = GetParam()},
           {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 4, .cp_comm_type = GetParam()}},
          "600 tokens", rounding_of(settings.spec));
}

// For the same tokens of a rank, keys and values that pass round a ring take the same memory however many ranks there
// are; gathered ones take as much again for each rank.
TEST(ContextParallel, RingsMemoryDoesNotGrowWithTheRanks) {
  const spec::ModelSpec model = small_spec();
  const auto scratch = [&](spec::CpCommType type, int cp) {
    StepSettings settings = SmallRun::Settings().step;
    settings.sequence_length = 512 * cp;
    ShardSpec share;
    share.cp = cp;
    share.cp_comm_type = type;
    return Step::bytes(model, settings, 0, 0, false, 1, 0, true, share).scratch;
  };
  EXPECT_EQ(scratch(p2p, 32), scratch(p2p, 2));
  EXPECT_GT(scratch(allgather, 32), 4 * scratch(allgather, 2));
  EXPECT_LT(4 * scratch(p2p, 32), scratch(allgather, 32));
}

// More ranks than key/value heads: neighbours have the same ones, and add up their gradients.
TEST(ContextParallel, RanksShareKeyValueHeads) {
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings = with_sgd(small_spec());
    if (adapter) settings.lora = small_lora();
    const std::vector<Layout> layouts = {
        {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 4},
        {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .visible = false, .cp = 2},
        {.tp = 1, .stages = 1, .dp = 1, .zero = 3, .recompute = spec::Recompute::full, .cp = 4}};
    compare(settings, layouts, "two heads on four ranks", rounding_of(settings.spec));
    for (spec::LayerSpec& layer : settings.spec.layers) layer.attention.kv_heads = 1;
    compare(settings, {layouts[0], layouts[1]}, "one head on four ranks", rounding_of(settings.spec));
  }
}

// Eight slices; units of several sequences; chunks of the loss that end within a part of a sequence; pipelines.
TEST(ContextParallel, HasTheBitsOfOneRankInSlices) {
  SmallRun::Settings settings{.threads = 1, .slices = 8};
  for (spec::LayerSpec& layer : settings.spec.layers) layer.attention = {.heads = 8, .kv_heads = 8, .head_dim = 4};
  std::vector<Layout> layouts = {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 8},
                                 {.tp = 2, .stages = 1, .dp = 1, .zero = 1, .cp = 4},
                                 {.tp = 2, .stages = 2, .dp = 1, .zero = 1, .schedule = zb_h1, .cp = 2},
                                 {.tp = 8, .stages = 1, .dp = 1, .zero = 0}};
  compare_bits(settings, layouts, "full");
  settings.step.accumulation_unit = 3;
  compare_bits(settings, {layouts.begin(), layouts.begin() + 2}, "units of three sequences");
  settings.spec.vocab = 1 << 17;  // chunks of 128 tokens
  settings.step.accumulation_unit = 1;
  settings.step.sequence_length = 320;
  settings.slices = 2;
  compare_bits(settings, {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2}}, "chunks", 1);
}

// The step's allocations equal the prediction, and activations take half of one rank's memory.
TEST(ContextParallel, TakesThePredictedMemory) {
  for (const auto& [adapter, type] : {std::pair(false, a2a), std::pair(true, a2a), std::pair(false, allgather),
                                      std::pair(true, allgather), std::pair(false, p2p), std::pair(true, p2p)}) {
    const auto bytes_with = [&](int cp) {
      StepBytes planned;
      comm::run_in_process({.ranks = cp, .timeout_s = 120}, [&](const comm::Group& world) {
        SmallRun::Settings own =
            laid_out({.threads = 1}, {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = cp, .cp_comm_type = type});
        if (adapter) own.lora = small_lora();
        own.ranks = world;
        SmallRun run(own);
        const StepBytes bytes =
            Step::bytes(run.spec, own.step, run.optimizer_state->lowest_trainable_layer(), adapter ? own.lora->rank : 0,
                        false, 1, run.optimizer_state->update_bytes(), true, run.optimizer_state->share());
        EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch + bytes.messages);
        run_step(run, 1);
        EXPECT_EQ(run.step->peak().saved, bytes.saved);
        EXPECT_GE(run.step->peak().scratch, bytes.scratch / 2);
        if (world.rank() == 0) planned = bytes;
      });
      return planned;
    };
    const size_t one = bytes_with(1).saved;
    EXPECT_LT(bytes_with(2).saved, one * 55 / 100);
    EXPECT_LT(bytes_with(4).saved, one * 30 / 100);
  }
}

class ContextParallelProbes : public testing::TestWithParam<spec::CpCommType> {};
INSTANTIATE_TEST_SUITE_P(Types, ContextParallelProbes, testing::Values(a2a, allgather, p2p));

TEST_P(ContextParallelProbes, DoNotCommunicate) {
  const Layout layout{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .cp_comm_type = GetParam()};
  SmallRun::Settings settings = laid_out({.threads = 1}, layout);
  Outcome expected;
  train(expected, settings, layout, 1);
  comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = settings;
    own.ranks = world;
    SmallRun run(own);
    const comm::Grid grid = run.step->grid();
    run.step.reset();
    if (world.rank() == 1) run.device.limit(1);
    StepSettings asked = own.step;
    asked.micro = 3;
    const auto probe = [&] {
      return probe_memory(run.device, run.registry, run.threads, run.model(), *run.optimizer_state, asked, false,
                          run.sequences(sequences), SmallRun::samples(sequences), grid);
    };
    EXPECT_THROW(probe(), Error);
    if (world.rank() == 1) run.device.limit(size_t{1} << 40);
    const ProbedStep tried = probe();
    EXPECT_EQ(tried.shortage, "");
    const StepResult result = tried.step->run(1, 1e-2, run.sequences(sequences), SmallRun::samples(sequences));
    EXPECT_NEAR(result.loss, expected.losses.front(), 1e-6);
  });
}

// The earliest cause is found, also when what it spoils reaches other ranks in the next attention.
TEST(ContextParallel, RanksAgreeOnSkippedSteps) {
  const Layout layout{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 4};
  comm::run_in_process({.ranks = 4, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out({.threads = 1}, layout);
    own.step.micro = 3;
    own.ranks = world;
    SmallRun run(own);
    EXPECT_FALSE(run_step(run, 1).skipped);
    const auto& tensors = run.optimizer_state->tensors();
    const auto found = std::ranges::find(tensors, "model.layers.1.mlp.up_proj.weight", &TrainedParameter::name);
    ASSERT_NE(found, tensors.end());
    if (world.rank() == 2) found->weight.as<float>()[0] = INFINITY;
    EXPECT_TRUE(run_step(run, 2).skipped);
    const std::string cause =
        run.step->locate_non_finite(2, run.sequences(sequences), SmallRun::samples(sequences), run.weights);
    EXPECT_NE(cause.find("model.layers.1.mlp.up_proj.weight, whose values are not finite"), std::string::npos) << cause;
  });
}

TEST(ContextParallel, RefusesWhatRanksCannotShare) {
  spec::ModelSpec spec = small_spec();
  for (spec::LayerSpec& layer : spec.layers) layer.attention.heads = 24, layer.attention.kv_heads = 4;
  const auto refused = [&](int64_t tp, int64_t cp, int64_t length, bool bitwise = false, spec::CpCommType type = a2a) {
    try {
      spec::check_context_parallel(spec, spec::ContextParallel{cp, tp, length, bitwise, type});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.message() + "; " + error.hint();
    }
    return std::string();
  };
  for (const int64_t cp : {1, 2, 4, 12}) EXPECT_EQ(refused(2, cp, 24), "");
  EXPECT_EQ(refused(2, 3, 24),
            "3 context-parallel ranks cannot share the 12 heads and 2 key/value heads that each of 2 tensor-parallel "
            "ranks has; use one of 1, 2, 4, 6, 12, or cp_comm_type: p2p or allgather, which divide no heads");
  EXPECT_EQ(refused(2, 4, 24, true),
            "4 context-parallel ranks cannot share the 12 heads and 2 key/value heads that each of 2 tensor-parallel "
            "ranks has, with the same bits; use one of 1, 2");
  for (const spec::CpCommType type : {allgather, p2p}) {
    EXPECT_EQ(refused(2, 3, 24, false, type), "");
    EXPECT_EQ(refused(1, 3, 27, false, type),
              "the sequence length of 27 cannot be divided among 3 context-parallel ranks, with two chunks each; use a "
              "multiple of 6");
  }
  EXPECT_EQ(refused(1, 3, 20),
            "the sequence length of 20 cannot be divided among 3 context-parallel ranks; use a multiple of 3");
}

}  // namespace
}  // namespace ingot::train
