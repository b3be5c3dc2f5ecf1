// Training steps with layers cut over ranks: the losses, gradients and weights of one rank, to rounding, in any mix
// with data-parallel ranks, ZeRO and pipelines; and checkpoints that any layout reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/run_files.h"
#include "tests/train/small_run.h"
#include "train/memory_probe.h"
#include "train/run_checkpoint.h"

namespace ingot::train {
namespace {

constexpr int64_t sequences = 6;

struct Layout {
  int tp, stages, dp, zero;
  spec::PipelineScheduleName schedule = spec::PipelineScheduleName::one_f_one_b;
  int chunks = 1;
  bool visible = true;
  spec::Recompute recompute = spec::Recompute::none;
  int ranks() const { return tp * stages * dp; }
};

SmallRun::Settings laid_out(SmallRun::Settings settings, const Layout& layout) {
  settings.tp = layout.tp;
  settings.stages = layout.stages;
  settings.zero = layout.zero;
  settings.step.schedule = layout.schedule;
  settings.chunks = layout.chunks;
  settings.visible = layout.visible;
  settings.step.recompute = layout.recompute;
  settings.step.sequences = rank_sequences(sequences, 1, layout.dp - 1, layout.dp).count();
  return settings;
}

// Whole tensors, put together from the ranks' parts. What several ranks have must be equal.
class Gathered {
 public:
  void add(const TrainedParameter& t, const std::vector<float>& values) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& whole = all[t.number];
    whole.resize(static_cast<size_t>(t.whole.elements()), NAN);
    spec::for_runs(t.slice, t.whole.rank() > 1 ? t.whole[1] : 1, [&](int64_t first, int64_t count, int64_t at) {
      for (int64_t i = 0; i < count; ++i) {
        float& to = whole[static_cast<size_t>(first + i)];
        const float from = values[static_cast<size_t>(at + i)];
        EXPECT_TRUE(std::isnan(to) || to == from) << t.name << " " << first + i << ": " << to << " and " << from;
        to = from;
      }
    });
  }
  std::map<size_t, std::vector<float>> all;  // by TrainedParameter::number

 private:
  std::mutex mutex_;
};

struct Outcome {
  std::vector<double> losses, norms;
  double evaluated = 0;
  Gathered initial, weights;
};

StepResult run_step(SmallRun& run, int64_t step) {
  const std::vector<data::PackedSequence> all = run.sequences(sequences);
  const comm::Group& ranks = run.step->grid().dp;
  const std::vector<int64_t> samples = SmallRun::samples(sequences);
  const auto [begin, end] = rank_sequences(sequences, 1, ranks.rank(), ranks.size());
  // Updates by SGD are proportional to gradients, which are compared by them.
  const bool sgd = run.optimizer_state->tensors().front().optimizer->name == std::string_view("sgd");
  return run.step->run(step, sgd ? 0.1 : 1e-2,
                       std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                       std::span(samples).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

void train(Outcome& outcome, const SmallRun::Settings& settings, const Layout& layout, int64_t steps = 3) {
  comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out(settings, layout);
    own.ranks = world;
    SmallRun run(own);
    if (own.lora) run.randomise_b(7);
    for (const TrainedParameter& t : run.optimizer_state->tensors()) outcome.initial.add(t, run.weight(t));
    const auto record = [&](std::vector<double>& list, double value) {
      const std::vector<double> everywhere = world.gather_one(value);
      for (const double each : everywhere) EXPECT_EQ(each, everywhere.front());
      if (world.rank() == 0) list.push_back(value);
    };
    for (int64_t step = 1; step <= steps; ++step) {
      const StepResult result = run_step(run, step);
      EXPECT_FALSE(result.skipped);
      record(outcome.losses, result.loss);
      record(outcome.norms, result.grad_norm);
    }
    const double evaluated = run.evaluate(run.sequences(3));
    const std::vector<double> losses = world.gather_one(evaluated);
    if (world.rank() == 0) outcome.evaluated = *std::ranges::max_element(losses);
    EXPECT_EQ(std::ranges::count_if(losses, [](double loss) { return loss > 0; }), layout.dp);
    for (const TrainedParameter& t : run.optimizer_state->tensors()) outcome.weights.add(t, run.weight(t));
  });
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

// Updates by SGD are proportional to the gradients: weights agree where gradients do.
void compare(const SmallRun::Settings& settings, const std::vector<Layout>& tried, const std::string& name,
             double rounding) {
  Outcome one;
  train(one, settings, {1, 1, 1, 0});
  for (const Layout& layout : tried) {
    const std::string where =
        fmt::format("{}, tp {}, {} stages, dp {}, zero {}", name, layout.tp, layout.stages, layout.dp, layout.zero);
    Outcome found;
    train(found, settings, layout);
    ASSERT_EQ(found.losses.size(), one.losses.size()) << where;
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i] / one.losses[i], 1, rounding) << where << " " << i;
      EXPECT_NEAR(found.norms[i] / one.norms[i], 1, 10 * rounding) << where << " " << i;
    }
    EXPECT_NEAR(found.evaluated / one.evaluated, 1, rounding) << where;
    ASSERT_EQ(found.weights.all.size(), one.weights.all.size()) << where;
    for (const auto& [number, expected] : one.weights.all) {
      const std::vector<float>& weight = found.weights.all.at(number);
      ASSERT_EQ(weight.size(), expected.size()) << where << ", tensor " << number;
      const double ulp = settings.weights == DType::bf16 ? 0x1p-7 : 0x1p-20;
      // Updates, which are as exact as gradients; and the weights, which are rounded after each.
      const std::vector<float>& before = one.initial.all.at(number);
      std::vector<float> update(expected);
      for (size_t i = 0; i < update.size(); ++i) update[i] -= before[i];
      EXPECT_GT(largest(update), 0) << where << ", tensor " << number;
      const double bound = 20 * rounding * largest(update) + ulp * largest(expected);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(weight[i], expected[i], bound) << where << ", tensor " << number << ", element " << i;
    }
  }
}

std::vector<models::FamilyCase> families() {
  std::vector<models::FamilyCase> list = models::family_cases();
  std::erase_if(list, [](const models::FamilyCase& c) { return !models::can_be_cut(c.spec, {.tp = 2, .pp = 2}); });
  return list;
}

// The rounding error of sums of this many terms propagates through all blocks, forward and backward, and over steps.
double rounding_of(const spec::ModelSpec& spec) {
  return tolerance(DType::f32, std::max<int64_t>(spec::longest_row(spec), 24) * 7 * spec.num_layers() * 3);
}

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

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelTraining, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

// What one rank and `layout` computed has the same bits.
void expect_equal(const Outcome& one, const Outcome& found, const std::string& where) {
  EXPECT_EQ(found.losses, one.losses) << where;
  EXPECT_EQ(found.norms, one.norms) << where;
  EXPECT_EQ(found.evaluated, one.evaluated) << where;
  ASSERT_EQ(found.weights.all.size(), one.weights.all.size()) << where;
  for (const auto& [number, expected] : one.weights.all)
    EXPECT_EQ(found.weights.all.at(number), expected) << where << ", tensor " << number;
}

// In `slices`, by one rank and by every layout; with two micro-batches of one rank, too.
void compare_bits(SmallRun::Settings settings, const std::vector<Layout>& tried, const std::string& name,
                  int64_t steps = 2) {
  settings.types.fixed_point_sums = true;
  settings.step.units = sequences;
  Outcome one;
  train(one, settings, {1, 1, 1, 0}, steps);
  for (const Layout& layout : tried) {
    Outcome found;
    settings.step.micro = layout.dp == 1 ? 3 : 1;
    train(found, settings, layout, steps);
    expect_equal(one, found,
                 fmt::format("{}, {} slices, tp {}, {} stages, dp {}, zero {}", name, settings.slices, layout.tp,
                             layout.stages, layout.dp, layout.zero));
  }
}

// With four slices where the family allows it, else two.
TEST_P(TensorParallelTraining, HasTheBitsOfOneRankInSlices) {
  using enum spec::PipelineScheduleName;
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  settings.slices = models::can_be_cut(settings.spec, {.tp = 4}) ? 4 : 2;
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

// What one layout wrote has the same bits after other layouts have read and written it.
TEST(TensorParallel, CheckpointsAreReadInAnyLayout) {
  using enum spec::PipelineScheduleName;
  const std::vector<Layout> layouts = {{2, 1, 2, 1}, {1, 1, 1, 0}, {2, 2, 1, 0}, {1, 1, 3, 2}, {4, 1, 1, 0},
                                       {2, 1, 3, 2}, {1, 1, 3, 3}, {1, 2, 2, 1}, {2, 1, 2, 3}, {2, 1, 1, 0}};
  std::set<std::string> seen;
  for (const models::FamilyCase& family : families()) {
    seen.insert(family.spec.family);
    // Four ranks need four key/value heads.
    const bool four = family.spec.layers.front().attention.kv_heads % 4 == 0;
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
  for (const char* name : {"qwen3", "mixtral", "gpt2", "mpt"}) EXPECT_TRUE(seen.contains(name)) << name;
}

// The step's allocations equal the prediction.
TEST(TensorParallel, TakesThePredictedMemory) {
  for (const auto& [adapter, slices] : {std::pair(false, 1), {true, 1}, {false, 2}, {true, 2}}) {
    SmallRun::Settings settings{.threads = 1};
    if (adapter) settings.lora = small_lora();
    if (slices > 1) {
      settings.slices = slices;
      settings.types.fixed_point_sums = true;
      settings.step.units = sequences;
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
        EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch);
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
      own.step.units = sequences;
      const SmallRun run(own);
    });
  });
  EXPECT_NE(text.find("fixed-point sums over 2 tensor-parallel ranks"), std::string::npos) << text;
}

}  // namespace
}  // namespace ingot::train
