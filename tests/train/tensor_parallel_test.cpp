// Training steps with layers cut over ranks: the losses, gradients and weights of one rank, to rounding, in any mix
// with data-parallel ranks, ZeRO and pipelines; and checkpoints that any layout reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/sanitized.h"
#include "tests/train/layouts.h"
#include "tests/train/run_files.h"
#include "train/memory_probe.h"
#include "train/run_checkpoint.h"

namespace ingot::train {
namespace {

class TensorParallelTraining : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(TensorParallelTraining, EqualsOneRank) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  settings.step.optimizer.clip_grad_norm = 0.5;
  compare(settings,
          {{2, 1, 1, 0},
           {2, 1, 2, 2, one_f_one_b, 1, false},
           {2, 2, 1, 0, zb_h1},
           {2, 2, 2, 1, one_f_one_b, 1, false, spec::Recompute::full},
           {2, 1, 2, 3, one_f_one_b, 1, false, spec::Recompute::selective}},
          GetParam().name, rounding_of(settings.spec));
}

TEST_P(TensorParallelTraining, AdaptersEqualOneRank) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.spec = GetParam().spec, .lora = small_lora(), .threads = 1};
  const auto is_cut_at_4 = [](const spec::LayerSpec& layer) { return spec::dense_of(layer.mlp).features % 8 == 0; };
  if (std::ranges::all_of(settings.spec.layers, is_cut_at_4)) settings.lora->dropout = 0.2;
  settings.types.optimizer = OptimizerName::sgd;
  compare(settings, {{2, 1, 1, 0}, {2, 1, 2, 1, one_f_one_b, 1, false}, {2, 2, 1, 0, zb_h1}, {2, 1, 2, 3}},
          GetParam().name, rounding_of(settings.spec));
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelTraining, testing::ValuesIn(cut_families()),
                         [](const auto& info) { return info.param.name; });

// The families in which four ranks have copies of two key/value heads, or of one.
std::vector<models::FamilyCase> families_with_copies() {
  std::vector<models::FamilyCase> list = cut_families();
  std::erase_if(list, [](const models::FamilyCase& c) {
    return c.spec.layers.front().attention.kv_heads >= 4 || !models::can_be_cut(c.spec, {.tp = 4});
  });
  return list;
}

class CopiedKeyValueHeads : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(CopiedKeyValueHeads, EqualOneRank) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.types.optimizer = OptimizerName::sgd;
  settings.step.optimizer.clip_grad_norm = 0.5;
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    compare(settings,
            {{4, 1, 1, 0},
             {4, 1, 2, 2, one_f_one_b, 1, false, spec::Recompute::full},
             {4, 2, 1, 1, zb_h1},
             {4, 1, 2, 3, one_f_one_b, 1, false, spec::Recompute::selective}},
            fmt::format("{}, {}", GetParam().name, adapter ? "adapter" : "full"), rounding_of(settings.spec));
    SmallRun::Settings half = settings;
    half.weights = half.step.activation = DType::bf16;
    compare(half, {{4, 1, 1, 0}}, GetParam().name + ", bf16", tolerance(DType::bf16, 24));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CopiedKeyValueHeads, testing::ValuesIn(families_with_copies()),
                         [](const auto& info) { return info.param.name; });

TEST(TensorParallel, CopiesKeyValueHeadsOfEveryKind) {
  bool one = false, two = false, fused = false, norm = false, bias = false, experts = false;
  for (const models::FamilyCase& family : families_with_copies()) {
    const spec::LayerSpec& layer = family.spec.layers.front();
    one = one || layer.attention.kv_heads == 1;
    two = two || layer.attention.kv_heads == 2;
    fused = fused || layer.attention.fused_qkv;
    norm = norm || layer.attention.qk_norm == spec::QkNorm::head;
    bias = bias || layer.attention.bias;
    experts = experts || spec::experts_of(layer.mlp) != nullptr;
  }
  EXPECT_TRUE(one && two && fused && norm && bias && experts) << one << two << fused << norm << bias << experts;
}

class TensorParallelSlices : public testing::TestWithParam<models::FamilyCase> {};

// With four slices where the family allows it, else two.
TEST_P(TensorParallelSlices, HaveTheBitsOfOneRank) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.slices = max_slices(settings.spec);
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    for (const DType type : {DType::f32, DType::bf16}) {
      settings.weights = settings.step.activation = type;
      compare_bits(
          settings,
          {{settings.slices, 1, 1, 0}, {2, 1, 2, 2, one_f_one_b, 1, false, spec::Recompute::full}, {2, 2, 1, 0, zb_h1}},
          fmt::format("{}, {}, {}", GetParam().name, adapter ? "adapter" : "full", ingot::name(type)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelSlices, testing::ValuesIn(sliced_families()),
                         [](const auto& info) { return info.param.name; });

// An adapter of the head, on vocabularies that are cut unevenly, with shares of the state.
TEST(TensorParallel, AdaptersOfTheHeadEqualOneRank) {
  SmallRun::Settings settings{.threads = 1};
  settings.spec.vocab = 9001;
  settings.types.optimizer = OptimizerName::sgd;
  for (const bool tied : {false, true}) {
    settings.spec.tied_head = tied;
    compare(settings, {{2, 1, 1, 0}, {2, 1, 2, 1}, {2, 3, 1, 0}}, tied ? "tied" : "untied", rounding_of(settings.spec));
  }
  settings.spec.tied_head = false;
  settings.lora = small_lora({"lm_head", "q_proj"});
  compare(settings, {{2, 1, 1, 0}, {2, 1, 2, 1}, {2, 1, 3, 2}, {2, 3, 1, 0}}, "head", rounding_of(settings.spec));
}

// Eight slices, sums that kernels divide, vocabularies and blocks of squares that come out uneven, dropout, shares of
// the state, weights that are decoded.
TEST(TensorParallel, HasTheBitsOfOneRankInSlices) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.threads = 1};
  settings.spec.vocab = 2003;
  settings.spec.hidden = 96;
  spec::LayerSpec layer = settings.spec.layers.front();
  layer.attention = {.heads = 16, .kv_heads = 8, .head_dim = 8};
  layer.mlp = spec::Dense{.features = 1056};
  settings.spec.layers = spec::repeated(2, layer);
  settings.slices = 8;
  for (const bool tied : {false, true}) {
    settings.spec.tied_head = tied;
    settings.weights = settings.step.activation = tied ? DType::bf16 : DType::f32;
    compare_bits(settings, {{8, 1, 1, 0}, {4, 1, 2, 1}, {2, 1, 3, 3}, {1, 1, 2, 2}}, tied ? "tied" : "untied");
  }
  settings.spec.tied_head = false;
  settings.lora = small_lora({"all-linear", "lm_head"});
  settings.lora->dropout = 0.1;
  compare_bits(settings, {{4, 1, 1, 0}, {2, 2, 1, 0, zb_h1}, {2, 1, 2, 3}}, "head");
  // A gemm that decodes this MLP's output layer sums over outputs in two parts, and over those of half of it in one.
  settings.weights = DType::f32;
  settings.spec.hidden = 72;
  layer.attention.heads = layer.attention.kv_heads = 2;
  layer.mlp = spec::Dense{.features = 32768};
  settings.spec.layers = spec::repeated(1, layer);
  settings.slices = 2;
  settings.step.sequence_length = 16;
  compare_bits(settings, {{2, 1, 1, 0}}, "decoded", 1);
}

// Four ranks, bf16, other optimizers; the weights of AdamW and Lion are not compared, since their updates magnify the
// rounding of small gradients.
TEST(TensorParallel, EqualsOneRankInOtherSettings) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.threads = 1};
  for (spec::LayerSpec& layer : settings.spec.layers) layer.attention.kv_heads = 4;
  settings.types.optimizer = OptimizerName::sgd;
  compare(settings, {{4, 1, 1, 0}, {4, 3, 1, 0}, {2, 1, 3, 1}}, "four ranks", rounding_of(settings.spec));
  for (const bool adapter : {false, true}) {
    SmallRun::Settings half = settings;
    half.weights = half.step.activation = DType::bf16;
    if (adapter) half.lora = small_lora();
    compare(half, {{2, 1, 1, 0}, {4, 1, 1, 0}}, "bf16", tolerance(DType::bf16, 24));
  }
  // In fp8 each part of a row has its own scale: 3 bits of mantissa in other places.
  for (const bool adapter : {false, true}) {
    SmallRun::Settings eight = settings;
    eight.weights = eight.step.activation = DType::bf16;
    eight.step.fp8 = true;
    if (adapter) eight.lora = small_lora();
    Outcome one, found;
    train(one, eight, {1, 1, 1, 0});
    train(found, eight, {2, 1, 1, 0});
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i] / one.losses[i], 1, 0.02) << i;
      EXPECT_NEAR(found.norms[i] / one.norms[i], 1, 0.1) << i;
    }
  }
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::lion}) {
    settings.types.optimizer = name;
    Outcome one, found;
    train(one, settings, {1, 1, 1, 0});
    train(found, settings, {2, 2, 2, 1});
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i] / one.losses[i], 1, 1e-4) << static_cast<int>(name) << " " << i;
  }
}

// What one layout wrote has the same bits after other layouts have read and written it. Sanitizers look at every kind
// of parameter, not at every family.
TEST(TensorParallel, CheckpointsAreReadInAnyLayout) {
  using enum spec::PipelineScheduleName;
  const std::vector<Layout> layouts = {{2, 1, 2, 1}, {1, 1, 1, 0}, {2, 2, 1, 0}, {1, 1, 3, 2}, {4, 1, 1, 0},
                                       {2, 1, 3, 2}, {1, 1, 3, 3}, {1, 2, 2, 1}, {2, 1, 2, 3}, {2, 1, 1, 0}};
  const std::set<std::string> kinds = {"qwen3", "mixtral", "gpt2", "mpt"};
  std::set<std::string> seen;
  for (const models::FamilyCase& family : cut_families()) {
    if (sanitized && !kinds.contains(family.spec.family)) continue;
    seen.insert(family.spec.family);
    const bool four = models::can_be_cut(family.spec, {.tp = 4});
    for (const bool adapter : {false, true}) {
      const RunFiles files;
      SmallRun::Settings settings{.spec = family.spec, .threads = 1};
      if (adapter) settings.lora = small_lora();
      settings.types.state = DType::bf16;
      for (size_t i = 0; i < layouts.size(); ++i) {
        Layout layout = layouts[i];
        if (!four) layout.tp = std::min(layout.tp, 2);
        comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
          SmallRun::Settings own = laid_out(settings, layout);
          own.ranks = world;
          SmallRun run(own);
          if (i == 0) {
            EXPECT_FALSE(run_step(run, 1).skipped);
          } else {
            const auto before = std::to_string(i - 1);
            EXPECT_TRUE(read_run_checkpoint(files.path() / before, "{}", *run.optimizer_state, run.device, world));
            EXPECT_EQ(tensors_that_differ(files.path() / "0", 1, *run.optimizer_state, run.device),
                      std::vector<std::string>{})
                << family.name << ", layout " << i;
          }
          write_run_checkpoint(files.path() / std::to_string(i), {1, 144}, "{}", *run.optimizer_state, run.device, 2,
                               world);
        });
      }
    }
  }
  for (const std::string& name : kinds) EXPECT_TRUE(seen.contains(name)) << name;
}

// The step's allocations equal the prediction.
TEST(TensorParallel, TakesThePredictedMemory) {
  for (const auto& [adapter, slices] : {std::pair(false, 1), {true, 1}, {false, 2}, {true, 2}}) {
    SmallRun::Settings settings{.threads = 1};
    if (adapter) settings.lora = small_lora();
    if (slices > 1) {
      settings.slices = slices;
      settings.types.fixed_point_sums = true;
      settings.step.accumulation_units = sequences;
    }
    for (const Layout& layout : {Layout{2, 1, 1, 0}, {2, 2, 1, 0}, {2, 1, 2, 2}, {2, 1, 2, 3}, {1, 1, 1, 0}}) {
      comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
        SmallRun::Settings own = laid_out(settings, layout);
        own.ranks = world;
        SmallRun run(own);
        const ShardSpec& share = run.optimizer_state->share();
        const StepBytes bytes =
            Step::bytes(run.spec, own.step, run.optimizer_state->lowest_trainable_layer(), adapter ? own.lora->rank : 0,
                        false, 1, run.optimizer_state->update_bytes(), true, share);
        EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch + bytes.messages);
        run_step(run, 1);
        EXPECT_EQ(run.step->peak().saved, bytes.saved);
        EXPECT_GE(run.step->peak().scratch, bytes.scratch / 2);
        const spec::ModelSpec& spec = run.spec;
        const OptimizerStateBytes all = optimizer_state_bytes(spec, own.lora, DType::f32, own.types, {.shards = {{}}});
        const OptimizerStateBytes part = optimizer_state_bytes(spec, own.lora, DType::f32, own.types, share);
        if (layout.tp > 1) EXPECT_LT(part.moments, all.moments);
      });
    }
  }
}

// A probe computes one rank's part alone, so that a rank that runs out of memory leaves none waiting; then they train
// as without it.
TEST(TensorParallel, MemoryProbesDoNotCommunicate) {
  SmallRun::Settings settings = laid_out({.threads = 1}, {2, 2, 1, 0});
  settings.step.micro = 1;
  Outcome expected;
  train(expected, settings, {2, 2, 1, 0}, 1);
  comm::run_in_process({.ranks = 4, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = settings;
    own.ranks = world;
    SmallRun run(own);
    const comm::Grid grid = run.step->grid();
    run.step.reset();
    const auto probe = [&](int64_t micro) {
      StepSettings asked = own.step;
      asked.micro = micro;
      return probe_memory(run.device, run.registry, run.threads, run.model(), *run.optimizer_state, asked, false,
                          run.sequences(sequences), SmallRun::samples(sequences), grid);
    };
    const StepBytes most = Step::bytes(run.spec, own.step, 0, 0, false, 1, run.optimizer_state->update_bytes(), true,
                                       run.optimizer_state->share());
    if (world.rank() == 3) run.device.limit(std::max({most.saved, most.scratch, most.batch}));
    const ProbedStep tried = probe(3);
    EXPECT_EQ(tried.step->settings().micro, 1);
    EXPECT_NE(tried.shortage, "");
    const StepResult result = tried.step->run(1, 1e-2, run.sequences(sequences), SmallRun::samples(sequences));
    EXPECT_NEAR(result.loss, expected.losses.front(), 1e-6);
  });
}

// A value that is not finite on one rank skips the step on all.
TEST(TensorParallel, RanksAgreeOnSkippedSteps) {
  comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out({.threads = 1}, {2, 1, 1, 0});
    own.ranks = world;
    SmallRun run(own);
    EXPECT_FALSE(run_step(run, 1).skipped);
    const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
    const auto& tensors = run.optimizer_state->tensors();
    const auto found = std::ranges::find(tensors, "model.layers.1.mlp.up_proj.weight", &TrainedParameter::name);
    ASSERT_NE(found, tensors.end());
    float& one = found->weight.as<float>()[0];
    const float was = one;
    if (world.rank() == 1) one = INFINITY;
    EXPECT_TRUE(run_step(run, 2).skipped);
    const std::string cause =
        run.step->locate_non_finite(2, run.sequences(sequences), SmallRun::samples(sequences), run.weights);
    EXPECT_NE(cause.find("model.layers.1.mlp.up_proj.weight, whose values are not finite"), std::string::npos) << cause;
    one = was;
    EXPECT_EQ(state_of(*run.optimizer_state), before);
    EXPECT_FALSE(run_step(run, 2).skipped);
  });
}

TEST(TensorParallel, DropoutThatIsCutWithinItsRandomNumbersIsRefused) {
  spec::LoraSpec lora = small_lora();
  lora.dropout = 0.1;
  spec::ModelSpec spec = small_spec();
  for (spec::LayerSpec& layer : spec.layers) layer.mlp = spec::Dense{.features = 12};
  const std::string text =
      refusal(ErrorKind::usage, [&] { optimizer_state_bytes(spec, lora, DType::f32, {}, {.shards = {{.tp = 2}}}); });
  EXPECT_NE(text.find("cuts the 12 inputs of model.layers.0.mlp.down_proj into 6"), std::string::npos) << text;
}

TEST(TensorParallel, FixedPointSumsAreRefused) {
  const std::string text = refusal(ErrorKind::internal, [] {
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings own = laid_out({.threads = 1}, {2, 1, 1, 0});
      own.ranks = world;
      own.types.fixed_point_sums = true;
      own.step.accumulation_units = sequences;
      const SmallRun run(own);
    });
  });
  EXPECT_NE(text.find("fixed-point sums over 2 tensor-parallel ranks"), std::string::npos) << text;
}

}  // namespace
}  // namespace ingot::train
