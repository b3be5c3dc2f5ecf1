// Training steps in which data-parallel ranks share the experts of mixtures: the losses, gradients and weights of one
// rank, to rounding, or with fixed-point sums its bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/layouts.h"
#include "train/memory_probe.h"

namespace ingot::train {
namespace {

using enum spec::PipelineScheduleName;

std::vector<models::FamilyCase> mixtures() {
  std::vector<models::FamilyCase> list = models::family_cases();
  std::erase_if(list, [](const models::FamilyCase& c) { return !models::can_be_cut(c.spec, {.ep = 2}); });
  return list;
}

// Two ranks share the experts. Six sequences are not divided equally among four ranks, so that some compute padding.
std::vector<Layout> layouts_of(const spec::ModelSpec& spec) {
  std::vector<Layout> layouts = {
      {.tp = 1, .stages = 1, .dp = 2, .zero = 0},
      {.tp = 1, .stages = 1, .dp = 4, .zero = 2, .visible = false, .recompute = spec::Recompute::full},
      {.tp = 1, .stages = 1, .dp = 4, .zero = 1, .recompute = spec::Recompute::selective, .shard = 2},
      {.tp = 1, .stages = 1, .dp = 4, .zero = 2, .shard = 2},
      {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .recompute = spec::Recompute::full},
      {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .visible = false, .shard = 2},
      {.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = zb_h1}};
  for (Layout& layout : layouts) layout.ep = 2;
  if (models::can_be_cut(spec, {.ep = 4})) layouts.push_back({.tp = 1, .stages = 1, .dp = 4, .zero = 1, .ep = 4});
  return layouts;
}

// With ranks that share the layers or the tokens too.
std::vector<Layout> cut_layouts(const spec::ModelSpec& spec) {
  std::vector<Layout> layouts = {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2},
                                 {.tp = 1, .stages = 1, .dp = 2, .zero = 1, .visible = false, .cp = 2},
                                 {.tp = 1, .stages = 1, .dp = 2, .zero = 3, .visible = false, .cp = 2}};
  if (models::can_be_cut(spec, {.tp = 2})) {
    layouts.push_back({.tp = 2, .stages = 1, .dp = 2, .zero = 0, .recompute = spec::Recompute::selective});
    layouts.push_back(
        {.tp = 2, .stages = 1, .dp = 2, .zero = 1, .recompute = spec::Recompute::selective, .sequence_parallel = true});
    layouts.push_back({.tp = 2, .stages = 1, .dp = 2, .zero = 3, .recompute = spec::Recompute::selective});
  }
  for (Layout& layout : layouts) layout.ep = 2;
  return layouts;
}

std::vector<Layout> all_layouts(const spec::ModelSpec& spec) {
  std::vector<Layout> all = layouts_of(spec);
  std::ranges::copy(cut_layouts(spec), std::back_inserter(all));
  return all;
}

class ExpertParallelTraining : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(ExpertParallelTraining, EqualsOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  settings.step.optimizer.clip_grad_norm = 0.5;
  compare(settings, all_layouts(settings.spec), GetParam().name, rounding_of(settings.spec));
}

TEST_P(ExpertParallelTraining, AdaptersEqualOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .lora = small_lora(), .threads = 1};
  settings.lora->dropout = 0.2;
  settings.types.optimizer = OptimizerName::sgd;
  compare(settings, layouts_of(settings.spec), GetParam().name, rounding_of(settings.spec));
  settings.lora->dropout = 0;
  compare(settings, cut_layouts(settings.spec), GetParam().name, rounding_of(settings.spec));
}

TEST_P(ExpertParallelTraining, HasTheBitsOfOneRank) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    settings.weights = settings.step.activation = adapter ? DType::f32 : DType::bf16;
    const std::string name = fmt::format("{}, {}", GetParam().name, adapter ? "adapter" : "full");
    settings.slices = 1;
    compare_bits(settings, layouts_of(settings.spec), name);
    settings.slices = max_slices(settings.spec);
    if (settings.slices == 1) continue;
    std::vector<Layout> layouts = cut_layouts(settings.spec);
    if (settings.slices == 4) {
      layouts.push_back({.tp = 2, .stages = 1, .dp = 4, .zero = 3, .ep = 2});
      layouts.push_back({.tp = 2, .stages = 1, .dp = 2, .zero = 1, .cp = 2, .sequence_parallel = true, .ep = 4});
      if (!models::can_be_cut(settings.spec, {.ep = 4})) layouts.back().ep = 2;
    }
    compare_bits(settings, layouts, name);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertParallelTraining, testing::ValuesIn(mixtures()),
                         [](const auto& info) { return info.param.name; });

spec::ModelSpec small_mixture() {
  spec::ModelSpec spec = small_spec();
  spec.family = "mixtral";
  for (spec::LayerSpec& layer : spec.layers)
    layer.mlp = spec::Experts{.count = 4, .per_token = 2, .expert = spec::dense_of(layer.mlp)};
  return spec;
}

// Several sequences in a micro-batch, and in an accumulation unit; bf16; another optimizer, which needs whole matrices.
TEST(ExpertParallel, EqualsOneRankInOtherSettings) {
  SmallRun::Settings settings{.spec = small_mixture(), .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  const std::vector<Layout> layouts = {{.tp = 1, .stages = 1, .dp = 2, .zero = 2, .ep = 2},
                                       {.tp = 1, .stages = 2, .dp = 2, .zero = 0, .ep = 2}};
  settings.step.micro = 3;
  compare(settings, layouts, "three sequences", rounding_of(settings.spec));
  settings.step.micro = 1;
  settings.step.accumulation_unit = 2;
  compare(settings, {{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .ep = 2}}, "units of two sequences",
          rounding_of(settings.spec));
  settings.step.accumulation_unit = 1;
  settings.weights = settings.step.activation = DType::bf16;
  compare(settings, layouts, "bf16", tolerance(DType::bf16, 24));
}

TEST(ExpertParallel, HasTheBitsOfOneRankWithEveryOptimizer) {
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::muon, OptimizerName::lion}) {
    SmallRun::Settings settings{.spec = small_mixture(), .threads = 1};
    settings.types.optimizer = name;
    compare_bits(settings,
                 {{.tp = 1, .stages = 1, .dp = 2, .zero = 1, .ep = 2},
                  {.tp = 1, .stages = 1, .dp = 4, .zero = 2, .ep = 2},
                  {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .ep = 2}},
                 fmt::format("optimizer {}", static_cast<int>(name)));
  }
}

// Masters and optimizer state in host memory, with shares of the weights.
TEST(ExpertParallel, HasTheBitsOfOneRankWithOffloadedOptimizerState) {
  SmallRun::Settings settings{.spec = small_mixture(), .weights = DType::bf16, .threads = 1};
  settings.step.activation = DType::bf16;
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = sequences;
  Outcome one;
  train(one, settings, {1, 1, 1, 0}, 2);
  settings.types.offload = true;
  for (const int dp : {2, 4}) {
    Outcome found;
    train(found, settings, {.tp = 1, .stages = 1, .dp = dp, .zero = 3, .visible = false, .ep = 2}, 2);
    EXPECT_TRUE(difference(one, found, DType::bf16, 1).bits) << dp << " ranks";
  }
}

// Frozen weights in host memory: of ranks that share an expert, and of one that has it alone.
TEST(ExpertParallel, OffloadedWeightsHaveTheBitsOfOneRank) {
  SmallRun::Settings settings{.spec = small_mixture(), .lora = small_lora(), .threads = 1};
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = sequences;
  Outcome one;
  train(one, settings, {1, 1, 1, 0}, 2);
  settings.offload = true;
  for (const int shard : {2, 4}) {
    Outcome found;
    const Layout layout{.tp = 1, .stages = 1, .dp = 4, .zero = 3, .visible = false, .ep = 2, .shard = shard};
    train(found, settings, layout, 2);
    EXPECT_TRUE(difference(one, found, DType::f32, 1).bits) << "shard groups of " << shard;
  }
}

// Ranks of which one alone has an adapted expert, or another layer of it.
TEST(ExpertParallel, AdaptersOfSomeExpertsHaveTheBitsOfOneRank) {
  SmallRun::Settings settings{.spec = small_mixture(),
                              .lora = small_lora({"experts.0.w1", "experts.1.w2", "experts.3.w3", "q_proj"}),
                              .threads = 1};
  settings.spec.layers.resize(4, settings.spec.layers.front());
  settings.step.optimizer.clip_grad_norm = 0.5;
  for (const int slices : {1, 2}) {
    settings.slices = slices;
    compare_bits(settings,
                 {{.tp = 1, .stages = 1, .dp = 2, .zero = 0, .ep = 2},
                  {.tp = 1, .stages = 1, .dp = 2, .zero = 1, .ep = 2},
                  {.tp = 1, .stages = 1, .dp = 4, .zero = 2, .ep = 2},
                  {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .ep = 2},
                  {.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = zb_v, .chunks = 2, .ep = 2}},
                 "some experts");
  }
}

// Parts of the model that have no mixture, of a rank that has one in another part.
TEST(ExpertParallel, HasTheBitsOfOneRankWithDenseLayers) {
  SmallRun::Settings settings{.threads = 1};
  for (const models::FamilyCase& family : models::family_cases()) {
    if (family.name == "qwen3_moe_dense_layer") settings.spec = family.spec;
  }
  spec::LayerSpec dense = settings.spec.layers.front(), mixture = dense;
  for (const spec::LayerSpec& layer : settings.spec.layers)
    (spec::experts_of(layer.mlp) == nullptr ? dense : mixture) = layer;
  settings.spec.layers = {dense, dense, mixture, mixture};
  compare_bits(
      settings,
      {{.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = interleaved, .chunks = 2, .visible = false, .ep = 2},
       {.tp = 1, .stages = 2, .dp = 4, .zero = 0, .schedule = one_f_one_b, .ep = 2},
       {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .visible = false, .ep = 2}},
      "dense layers");
}

// The step's allocations equal the prediction. A rank has half of the experts, of which every token can select two.
TEST(ExpertParallel, TakesThePredictedMemory) {
  const auto check = [](const Layout& layout, bool adapter) {
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings own = laid_out({.spec = small_mixture(), .threads = 1}, layout);
      if (adapter) own.lora = small_lora();
      if (adapter) own.lora->dropout = 0.25;
      own.ranks = world;
      SmallRun run(own);
      const ShardSpec& share = run.optimizer_state->share();
      const StepBytes bytes = Step::bytes(run.spec, own.step, 0, run.optimizer_state->adapter_rank(), false, 1,
                                          run.optimizer_state->update_bytes(), own.visible, share);
      EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch + bytes.messages);
      run_step(run, 1);
      EXPECT_EQ(run.step->peak().saved, bytes.saved);
      EXPECT_GE(run.step->peak().scratch, bytes.scratch / 2);
      size_t held = 0;
      for (const spec::HeldParameter& p : spec::held_parameters(run.spec, share.shards)) held += p.divided ? 1 : 0;
      EXPECT_EQ(held, run.spec.layers.size() * 2 * 3);
    });
  };
  for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    for (const bool visible : {false, true}) {
      for (const bool adapter : {false, true}) {
        check({.tp = 1, .stages = 1, .dp = 2, .zero = 0, .visible = visible, .recompute = recompute, .ep = 2}, adapter);
      }
    }
  }
}

// With balanced routing each rank has as many rows as without expert parallelism, and one expert a share of them.
TEST(ExpertParallel, NeedsLessMemoryWithBalancedRouting) {
  const spec::ModelSpec spec = small_mixture(), balanced = spec::with_balanced_routing(spec);
  for (const bool visible : {false, true}) {
    for (const int64_t ep : {2, 4}) {
      const StepSettings settings{.sequence_length = 24};
      const auto bytes = [&](const spec::ModelSpec& model, int64_t ranks) {
        ShardSpec share{.ranks = 4};
        share.shards.front().ep = ranks;
        return Step::bytes(model, settings, 0, 0, false, 1, 0, visible, share);
      };
      const StepBytes any = bytes(spec, ep), even = bytes(balanced, ep), one = bytes(spec, 1);
      EXPECT_EQ(even.saved, one.saved);
      EXPECT_EQ(even.batch, any.batch);
      EXPECT_LT(even.scratch, any.scratch);
      // 24 tokens of two rows; all of them on one of the ranks: two of its experts, or one.
      const auto rows = static_cast<size_t>(24 * ep * (ep == 2 ? 2 : 1) - 24 * 2);
      const size_t row = (16 + 3 * 24) * sizeof(float);  // the residual's features, and three of the MLP's
      EXPECT_EQ(any.saved - even.saved, spec.layers.size() * rows * row);
    }
  }
}

// All ranks name the expert of one of them, or of ranks that gather it.
TEST(ExpertParallel, LocatesTheExpertThatIsNotFinite) {
  const std::string name = "model.layers.1.block_sparse_moe.experts.2.w3.weight";
  const auto check = [&](const Layout& layout) {
    comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings own = laid_out({.spec = small_mixture(), .threads = 1}, layout);
      own.ranks = world;
      SmallRun run(own);
      for (const TrainedParameter& t : run.optimizer_state->tensors()) {
        if (t.name == name && t.own_weight.elements() > 5) t.own_weight.as<float>()[5] = INFINITY;
      }
      EXPECT_TRUE(run_step(run, 1).skipped);
      const std::vector<data::PackedSequence> all = run.sequences(layout.ranks());
      const auto rank = static_cast<size_t>(world.rank());
      const std::vector<int64_t> samples = {world.rank()};
      const WeightSet& weights = run.sharded ? run.sharded->weights() : run.weights;
      const std::string found = run.step->locate_non_finite(1, std::span(all).subspan(rank, 1), samples, weights);
      EXPECT_NE(found.find(name + ", whose values are not finite"), std::string::npos) << found;
    });
  };
  for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::full}) {
    check({.tp = 1, .stages = 1, .dp = 2, .zero = 0, .recompute = recompute, .ep = 2});
    check({.tp = 1, .stages = 1, .dp = 2, .zero = 3, .recompute = recompute, .ep = 2});
    check({.tp = 1, .stages = 1, .dp = 4, .zero = 3, .recompute = recompute, .ep = 2});
  }
}

// A probe computes with as many rows as there can be, alone; then the ranks train as without it.
TEST(ExpertParallel, MemoryProbesDoNotCommunicate) {
  for (const int zero : {0, 3}) {
    const Layout layout{.tp = 1, .stages = 1, .dp = 2, .zero = zero, .ep = 2};
    const SmallRun::Settings settings = laid_out({.spec = small_mixture(), .threads = 1}, layout);
    Outcome expected;
    train(expected, settings, layout, 1);
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings own = settings;
      own.ranks = world;
      SmallRun run(own);
      const ProbedStep tried = run.probe(3, world.rank() == 1, run.sequences(3));
      EXPECT_EQ(tried.step->settings().micro, 1);
      EXPECT_NE(tried.shortage, "");
      const std::vector<data::PackedSequence> all = run.sequences(sequences);
      const std::vector<int64_t> samples = SmallRun::samples(sequences);
      const size_t begin = 3 * static_cast<size_t>(world.rank());
      const StepResult result =
          tried.step->run(1, 1e-2, std::span(all).subspan(begin, 3), std::span(samples).subspan(begin, 3));
      EXPECT_NEAR(result.loss, expected.losses.front(), 1e-6);
    });
  }
}

}  // namespace
}  // namespace ingot::train
