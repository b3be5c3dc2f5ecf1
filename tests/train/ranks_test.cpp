// Training steps over several ranks: results for any distribution of micro-batches, optimizer state and pipeline
// stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <mutex>

#include "base/error.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/run_files.h"
#include "tests/train/small_run.h"
#include "train/run_checkpoint.h"

namespace ingot::train {
namespace {

// What must be equal between ranks and between runs.
struct RanksOutcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<size_t, std::vector<float>> weights;  // by TrainedParameter::number
  std::vector<int32_t> ranges;
  friend bool operator==(const RanksOutcome&, const RanksOutcome&) = default;
};

struct Case {
  const char* name;
  SmallRun::Settings settings;
};

// Tied and untied heads, an adapter with dropout, experts; all with gradient clipping. The vocabulary makes the
// embedding larger than a block of elements, so that it is sharded.
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, const auto& change) {
    Case c{name, {.threads = 1}};
    c.settings.spec.vocab = 4500;
    c.settings.step.recompute = spec::Recompute::none;
    change(c.settings);
    all.push_back(std::move(c));
  };
  add("full", [](SmallRun::Settings&) {});
  add("tied", [](SmallRun::Settings& s) { s.spec.tied_head = true; });
  add("bf16 with masters", [](SmallRun::Settings& s) {
    s.weights = DType::bf16;
    s.step.activation = DType::bf16;
  });
  add("adapter with dropout", [](SmallRun::Settings& s) {
    s.lora = small_lora();
    s.lora->dropout = 0.2;
    s.weights = DType::bf16;
    s.step.activation = DType::bf16;
  });
  add("muon", [](SmallRun::Settings& s) { s.types.optimizer = OptimizerName::muon; });
  add("muon in bf16 with 8-bit states", [](SmallRun::Settings& s) {
    s.types.optimizer = OptimizerName::muon;
    s.types.state = DType::u8;
    s.weights = DType::bf16;
    s.step.activation = DType::bf16;
  });
  add("muon on an adapter", [](SmallRun::Settings& s) {
    s.lora = small_lora();
    s.types.optimizer = OptimizerName::muon;
  });
  add("8-bit states", [](SmallRun::Settings& s) { s.types.state = DType::u8; });
  add("sgd", [](SmallRun::Settings& s) { s.types.optimizer = OptimizerName::sgd; });
  add("lion with bf16 states", [](SmallRun::Settings& s) {
    s.types.optimizer = OptimizerName::lion;
    s.types.state = DType::bf16;
  });
  add("experts", [](SmallRun::Settings& s) {
    s.spec.family = "mixtral";
    for (spec::LayerSpec& layer : s.spec.layers) layer.mlp = spec::Experts{4, 2, spec::dense_of(layer.mlp)};
  });
  return all;
}

// One step of all ranks on `sequences` sequences.
StepResult run_step(SmallRun& run, int64_t step, int64_t sequences) {
  const std::vector<data::PackedSequence> all = run.sequences(sequences);
  const std::vector<int64_t> samples = SmallRun::samples(sequences);
  const comm::Group& ranks = run.step->grid().dp;
  const Range share = rank_sequences(sequences, run.step->settings().accumulation_unit, ranks.rank(), ranks.size());
  StepResult result;
  do {
    run.step->begin(step, 1e-2, std::span(all).subspan(share.begin, share.count()),
                    std::span(samples).subspan(share.begin, share.count()));
    result = run.step->finish();
  } while (result.retry);
  return result;
}

void add_weights(RanksOutcome& outcome, const SmallRun& run) {
  const OptimizerState& optimizer_state = *run.optimizer_state;
  for (const TrainedParameter& t : optimizer_state.tensors()) outcome.weights[t.number] = run.weight(t);
  if (!optimizer_state.ranges()) return;
  const auto* ranges = optimizer_state.ranges().as<int32_t>();
  outcome.ranges.assign(ranges, ranges + optimizer_state.num_trainable());
}

RanksOutcome train_rank(SmallRun::Settings settings, const comm::Group& ranks, int64_t sequences, int64_t steps) {
  settings.ranks = ranks;
  SmallRun run(settings);
  RanksOutcome outcome;
  for (int64_t step = 1; step <= steps; ++step) {
    const StepResult result = run_step(run, step, sequences);
    EXPECT_FALSE(result.skipped);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  add_weights(outcome, run);
  return outcome;
}

// What all ranks have; what several of them have must be equal.
class Outcomes {
 public:
  void add(RanksOutcome outcome) {
    const std::lock_guard lock(mutex_);
    if (!all_) {
      all_ = std::move(outcome);
      return;
    }
    EXPECT_EQ(outcome.losses, all_->losses);
    EXPECT_EQ(outcome.norms, all_->norms);
    EXPECT_EQ(outcome.ranges, all_->ranges);
    for (auto& [number, weight] : outcome.weights) {
      const auto [place, added] = all_->weights.try_emplace(number, weight);
      if (!added) EXPECT_EQ(weight, place->second) << "tensor " << number;
    }
  }
  const RanksOutcome& all() const { return *all_; }

 private:
  std::mutex mutex_;
  std::optional<RanksOutcome> all_;
};

// `ranks`: the data-parallel ones of each of settings.stages.
RanksOutcome train(const SmallRun::Settings& settings, int ranks, int64_t sequences = 6, int64_t steps = 3) {
  Outcomes outcomes;
  comm::run_in_process({.ranks = ranks * settings.stages, .timeout_s = 120},
                       [&](const comm::Group& world) { outcomes.add(train_rank(settings, world, sequences, steps)); });
  return outcomes.all();
}

TEST(Ranks, FixedPointSumsHaveTheSameBitsForAnyRanksMicroBatchesAndZeroStages) {
  struct Layout {
    int ranks;
    int zero;
    int64_t micro;
    bool visible = true;
    int shard = 0;
  };
  for (Case& c : cases()) {
    c.settings.types.fixed_point_sums = true;
    c.settings.step.accumulation_units = 6;
    const RanksOutcome expected = train(c.settings, 1);
    for (const auto& [ranks, zero, micro, visible, shard] : {Layout{2, 0, 1},
                                                             {2, 1, 2, false},
                                                             {2, 2, 8},
                                                             {3, 0, 8, false},
                                                             {3, 1, 1},
                                                             {3, 2, 2},
                                                             {4, 2, 1, false},
                                                             {2, 3, 1},
                                                             {2, 3, 8, false},
                                                             {3, 3, 2},
                                                             {4, 3, 1, false},
                                                             {4, 1, 1, false, 2},
                                                             {4, 2, 1, true, 2},
                                                             {4, 3, 1, false, 2},
                                                             {3, 2, 2, true, 1}}) {
      c.settings.shard = shard;
      c.settings.zero = zero;
      c.settings.step.micro = micro;
      c.settings.visible = visible;
      EXPECT_EQ(train(c.settings, ranks), expected)
          << c.name << ", " << ranks << " ranks, zero " << zero << ", shard " << shard;
    }
  }
}

// Each with data-parallel ranks, ZeRO, a micro-batch and a schedule. Five blocks, so that stages differ.
struct PipelineLayout {
  spec::PipelineScheduleName schedule;
  int stages, chunks, ranks, zero;
  int64_t micro;
  bool visible = true;
  int shard = 0;
};

SmallRun::Settings laid_out_ranks(SmallRun::Settings settings, const PipelineLayout& layout, int64_t sequences) {
  settings.step.schedule = layout.schedule;
  settings.stages = layout.stages;
  settings.chunks = layout.chunks;
  settings.zero = layout.zero;
  settings.shard = layout.shard;
  settings.step.micro = layout.micro;
  settings.visible = layout.visible;
  settings.step.sequences =
      rank_sequences(sequences, settings.step.accumulation_unit, layout.ranks - 1, layout.ranks).count();
  return settings;
}

std::vector<PipelineLayout> pipeline_layouts() {
  using enum spec::PipelineScheduleName;
  return {{one_f_one_b, 2, 1, 1, 0, 1}, {gpipe, 3, 1, 2, 1, 2, false}, {zb_h1, 2, 1, 2, 0, 1},
          {zb_v, 2, 2, 1, 0, 2},        {interleaved, 2, 2, 2, 1, 1},  {one_f_one_b, 5, 1, 1, 0, 8}};
}

std::vector<Case> pipeline_cases() {
  std::vector<Case> all = cases();
  for (Case& c : all) c.settings.spec.layers = spec::repeated(5, c.settings.spec.layers.front());
  Case head{"the head's adapter alone", {.threads = 1}};
  head.settings.spec.layers = spec::repeated(5, head.settings.spec.layers.front());
  head.settings.lora = small_lora({"lm_head"});
  all.push_back(head);
  head.name = "adapters of the upper blocks";
  head.settings.lora = small_lora({"layers.3.self_attn.q_proj", "layers.4.mlp.up_proj"});
  all.push_back(head);
  return all;
}

TEST(Pipelines, FixedPointSumsHaveTheSameBitsForAnyScheduleStagesRanksAndMicroBatches) {
  for (Case& c : pipeline_cases()) {
    c.settings.types.fixed_point_sums = true;
    c.settings.step.accumulation_units = 6;
    const RanksOutcome expected = train(c.settings, 1);
    for (const PipelineLayout& layout : pipeline_layouts()) {
      EXPECT_EQ(train(laid_out_ranks(c.settings, layout, 6), layout.ranks), expected)
          << c.name << ", " << spec::name_of(layout.schedule) << ", " << layout.stages << " stages, " << layout.ranks
          << " ranks, zero " << layout.zero;
    }
  }
}

// In fp32 too a pipeline adds what as many data-parallel ranks without a pipeline add, in the same order; where the
// host cannot access the device's memory, with the same micro-batch.
TEST(Pipelines, Fp32SumsHaveTheBitsOfTheSameDataParallelRanks) {
  for (Case& c : pipeline_cases()) {
    for (const int ranks : {1, 2}) {
      const int64_t micro = 3 - ranks;
      std::map<bool, RanksOutcome> expected;  // by visibility
      for (const bool visible : {true, false}) {
        SmallRun::Settings settings = c.settings;
        settings.step.micro = micro;
        settings.visible = visible;
        expected.emplace(visible, train(settings, ranks));
      }
      for (PipelineLayout layout : pipeline_layouts()) {
        layout.ranks = ranks;
        layout.micro = micro;
        EXPECT_EQ(train(laid_out_ranks(c.settings, layout, 6), ranks), expected.at(layout.visible))
            << c.name << ", " << spec::name_of(layout.schedule) << ", " << ranks << " ranks";
      }
    }
  }
}

// A tied embedding beside learned positions: the first stage divides other tensors among its ranks than the last one.
TEST(Pipelines, TiedEmbeddingsAreSharedDifferentlyOnBothStages) {
  SmallRun::Settings settings{.threads = 1};
  for (const models::FamilyCase& family : models::family_cases()) {
    if (!family.spec.tied_head || !family.spec.learned_positions) continue;
    settings.spec = family.spec;
    settings.spec.vocab = 9000;
    settings.spec.layers = spec::repeated(4, settings.spec.layers.front());
    for (const bool fixed : {false, true}) {
      settings.types.fixed_point_sums = fixed;
      settings.step.accumulation_units = fixed ? 6 : 0;
      settings.zero = 1;
      const RanksOutcome expected = train(settings, 3);
      using enum spec::PipelineScheduleName;
      for (const PipelineLayout& layout : {PipelineLayout{one_f_one_b, 2, 1, 3, 1, 1}, {zb_v, 2, 2, 3, 1, 1}})
        EXPECT_EQ(train(laid_out_ranks(settings, layout, 6), 3), expected)
            << family.name << spec::name_of(layout.schedule);
    }
    return;
  }
  FAIL() << "no family has both";
}

// Three units of two sequences over four pipelines, one of which has none.
TEST(Pipelines, MayHaveFewerAccumulationUnitsOrNone) {
  SmallRun::Settings settings{.threads = 1};
  settings.spec = small_spec(true);
  settings.spec.layers = spec::repeated(4, settings.spec.layers.front());
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_unit = 2;
  settings.step.accumulation_units = 3;
  const RanksOutcome expected = train(settings, 1);
  using enum spec::PipelineScheduleName;
  for (const PipelineLayout& layout :
       {PipelineLayout{one_f_one_b, 2, 1, 4, 1, 1}, {zb_v, 2, 2, 4, 0, 1}, {interleaved, 2, 2, 2, 1, 1}}) {
    EXPECT_EQ(train(laid_out_ranks(settings, layout, 6), layout.ranks), expected) << spec::name_of(layout.schedule);
  }
}

// Losses of an evaluation, of more sequences than a pipeline takes at a time.
TEST(Pipelines, EvaluateLikeOneRank) {
  SmallRun::Settings settings{.threads = 1};
  settings.spec.layers = spec::repeated(5, settings.spec.layers.front());
  SmallRun one(settings);
  const std::vector<double> expected = one.step->evaluate(one.sequences(11));
  EXPECT_EQ(expected.size(), 11U);
  for (const PipelineLayout& layout : pipeline_layouts()) {
    comm::run_in_process({.ranks = layout.stages, .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings own = laid_out_ranks(settings, {layout.schedule, layout.stages, layout.chunks, 1, 0, 1}, 6);
      own.ranks = world;
      SmallRun run(own);
      const std::vector<double> losses = run.step->evaluate(run.sequences(11));
      const bool last = run.optimizer_state->share().shards.back().last();
      EXPECT_EQ(losses, last ? expected : std::vector<double>{}) << spec::name_of(layout.schedule);
    });
  }
}

// Allocations equal the prediction, which every stage's peak reaches.
TEST(Pipelines, TakeThePredictedMemory) {
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings{.threads = 1};
    settings.spec.layers = spec::repeated(5, settings.spec.layers.front());
    if (adapter) settings.lora = small_lora();
    for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::full}) {
      settings.step.recompute = recompute;
      for (const PipelineLayout& layout : pipeline_layouts()) {
        comm::run_in_process({.ranks = layout.stages, .timeout_s = 120}, [&](const comm::Group& world) {
          SmallRun::Settings own =
              laid_out_ranks(settings, {layout.schedule, layout.stages, layout.chunks, 1, 0, 1}, 6);
          own.ranks = world;
          SmallRun run(own);
          const StepBytes bytes = Step::bytes(run.spec, own.step, run.optimizer_state->lowest_trainable_layer(),
                                              adapter ? own.lora->rank : 0, false, 1,
                                              run.optimizer_state->update_bytes(), true, run.optimizer_state->share());
          EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch + bytes.messages);
          run_step(run, 1, 6);
          const std::string where =
              fmt::format("{}, stage {} of {}", spec::name_of(layout.schedule), world.rank(), layout.stages);
          // A slot is as large as its rank's largest chunk needs.
          if (layout.chunks == 1) EXPECT_EQ(run.step->peak().saved, bytes.saved) << where;
          EXPECT_GE(run.step->peak().saved, bytes.saved * 3 / 4) << where;
          EXPECT_GE(run.step->peak().scratch, bytes.scratch / 2) << where;
        });
      }
    }
  }
}

// A range that a contribution exceeds on one stage is enlarged everywhere and the step repeated.
TEST(Pipelines, AgreeOnSkippedAndRepeatedSteps) {
  SmallRun::Settings settings{.threads = 1};
  settings.spec = small_spec(true);
  settings.spec.layers = spec::repeated(4, settings.spec.layers.front());
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = 6;
  comm::run_in_process({.ranks = 4, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out_ranks(settings, {spec::PipelineScheduleName::one_f_one_b, 2, 1, 2, 0, 1}, 6);
    own.ranks = world;
    SmallRun run(own);
    EXPECT_FALSE(run_step(run, 1, 6).skipped);
    const auto weights = [&] {
      RanksOutcome outcome;
      add_weights(outcome, run);
      return outcome;
    };
    const RanksOutcome before = weights();
    float& one = run.optimizer_state->tensors().back().weight.as<float>()[0];
    const float was = one;
    if (world.rank() == 3) one = INFINITY;  // the last stage of the second pipeline
    EXPECT_TRUE(run_step(run, 2, 6).skipped);
    const std::vector<data::PackedSequence> all = run.sequences(6);
    const std::vector<int64_t> samples = SmallRun::samples(6);
    const size_t begin = run.step->grid().dp.rank() == 0 ? 0 : 3;
    const std::string found = run.step->locate_non_finite(2, std::span(all).subspan(begin, 3),
                                                          std::span(samples).subspan(begin, 3), run.weights);
    EXPECT_NE(found.find("model.norm.weight"), std::string::npos) << found;
    one = was;
    EXPECT_EQ(weights(), before);

    auto* ranges = run.optimizer_state->ranges().as<int32_t>();
    ranges[1] = -80;  // of the first stage
    EXPECT_FALSE(run_step(run, 2, 6).skipped);
    EXPECT_GT(ranges[1], -80);
    EXPECT_EQ(run.optimizer_state->updates(), 2);
    const auto everywhere = world.gather(std::span<const int32_t>(ranges, run.optimizer_state->num_trainable()));
    for (const std::vector<int32_t>& each : everywhere) EXPECT_EQ(each, everywhere[0]);
  });
}

// Accumulation units of two sequences: three units over two ranks, and over four, one of which has none.
TEST(Ranks, MayHaveFewerAccumulationUnitsOrNone) {
  for (const bool fixed : {true, false}) {
    SmallRun::Settings settings{.threads = 1};
    settings.types.fixed_point_sums = fixed;
    settings.step.accumulation_unit = 2;
    settings.step.accumulation_units = fixed ? 3 : 0;
    const RanksOutcome expected = train(settings, 1);
    for (const int ranks : {2, 4}) {
      for (const int zero : {0, 1, 2, 3}) {
        settings.zero = zero;
        const RanksOutcome found = train(settings, ranks);
        if (fixed) EXPECT_EQ(found, expected);
        for (size_t i = 0; i < expected.losses.size(); ++i) {
          EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, tolerance(DType::f32, 24 * 6)) << i;
        }
      }
    }
  }
}

// fp32 sums are added in rank order: rounding differs from one rank's, but is the same in every run.
TEST(Ranks, Fp32SumsAgreeToRoundingAndAreReproducible) {
  for (Case& c : cases()) {
    if (c.settings.step.activation != DType::f32) continue;
    const RanksOutcome expected = train(c.settings, 1);
    for (const int zero : {0, 1, 2, 3}) {
      c.settings.zero = zero;
      c.settings.step.micro = 2;
      const RanksOutcome found = train(c.settings, 3);
      EXPECT_EQ(train(c.settings, 3), found) << c.name;
      if (c.settings.types.optimizer != OptimizerName::lion) {  // Lion's updates are signs, which hide rounding
        EXPECT_NE(found.weights, expected.weights)
            << "sums over ranks round like one rank's: the fixed-point test proves nothing";
      }
      for (size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, tolerance(DType::f32, 24 * 6)) << c.name;
        EXPECT_NEAR(found.norms[i] / expected.norms[i], 1, 10 * tolerance(DType::f32, 24 * 6)) << c.name;
      }
    }
  }
}

// Rank 1 sends a bucket after rank 0 has started its next one.
TEST(Ranks, ContinueWhileABucketIsInFlight) {
  for (const int zero : {0, 1, 2, 3}) {
    std::promise<void> next;
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& ranks) {
      SmallRun run({.ranks = ranks, .zero = zero});
      GradientSync gradient_sync(run.step->context(), *run.optimizer_state, comm::data_parallel(ranks));
      gradient_sync.begin_step();
      if (ranks.rank() == 1 && next.get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
        throw_error(ErrorKind::internal, "the first rank waits for this one, zero {}", zero);
      }
      for (size_t bucket = run.optimizer_state->buckets().size(); bucket-- > 0;) {
        gradient_sync.begin(bucket, true);
        if (ranks.rank() == 0 && bucket + 1 == run.optimizer_state->buckets().size()) next.set_value();
      }
      gradient_sync.record_largest(true);
      gradient_sync.finish();
    });
  }
}

// The finding of one rank applies to all: a non-finite value skips the step everywhere, and a range that a contribution
// exceeds is increased everywhere and the step repeated.
TEST(Ranks, AgreeOnSkippedAndRepeatedSteps) {
  for (const int zero : {0, 1, 2, 3}) {
    SmallRun::Settings settings{.threads = 1};
    settings.types.fixed_point_sums = true;
    settings.step.accumulation_units = 6;
    settings.zero = zero;
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun::Settings own = settings;
      own.ranks = ranks;
      SmallRun run(own);
      EXPECT_FALSE(run_step(run, 1, 6).skipped);
      const auto weights = [&] {
        RanksOutcome outcome;
        add_weights(outcome, run);
        return outcome;
      };

      // Of a share, rank 1 has the last elements.
      const Tensor table = run.sharded ? run.sharded->own(0, DType::f32) : run.weights.parameters[0].matrix.tensor();
      const bool holds = table.elements() > 0;
      float none = 0;
      float& one = holds ? table.as<float>()[0] : none;
      const float was = one;
      const RanksOutcome before = weights();
      if (ranks.rank() == 1 || zero == 3) one = INFINITY;
      if (run.sharded) run.sharded->changed();
      const std::vector<data::PackedSequence> all = run.sequences(6);
      bool used = false;  // whether rank 1 uses the broken row
      for (size_t i = 3; i < 6; ++i) {
        used = used || std::find(all[i].ids.begin(), all[i].ids.end(), 0) != all[i].ids.end();
      }
      EXPECT_TRUE(used);
      EXPECT_TRUE(run_step(run, 2, 6).skipped);
      one = was;
      if (run.sharded) run.sharded->changed();
      EXPECT_EQ(weights(), before);

      auto* now = run.optimizer_state->ranges().as<int32_t>();
      now[1] = -80;
      const StepResult result = run_step(run, 2, 6);
      EXPECT_FALSE(result.skipped);
      EXPECT_GT(now[1], -80);
      EXPECT_EQ(run.optimizer_state->updates(), 2);
      const std::vector<std::vector<int32_t>> everywhere =
          ranks.gather(std::span<const int32_t>(now, run.optimizer_state->tensors().size()));
      EXPECT_EQ(everywhere[0], everywhere[1]);
    });
  }
}

// The run ends after every step and resumes in another layout, whose ranks have other parts of the state.
TEST(Ranks, ResumeFromCheckpointsOfOtherRanks) {
  using enum spec::PipelineScheduleName;
  struct Leg {
    PipelineLayout layout;
    bool background;
  };
  const std::vector<Leg> legs = {{{one_f_one_b, 1, 1, 1, 0, 2}, false},
                                 {{one_f_one_b, 1, 1, 3, 1, 1}, true},
                                 {{zb_v, 2, 2, 2, 1, 1}, false},
                                 {{one_f_one_b, 1, 1, 2, 2, 8}, false},
                                 {{one_f_one_b, 5, 1, 1, 0, 1}, true},
                                 {{one_f_one_b, 1, 1, 1, 0, 1}, true},
                                 {{gpipe, 2, 1, 3, 1, 1}, true},
                                 {{one_f_one_b, 1, 1, 2, 0, 2}, true},
                                 {{one_f_one_b, 1, 1, 3, 3, 1}, true},
                                 {{one_f_one_b, 1, 1, 4, 2, 1}, true},
                                 {{one_f_one_b, 1, 1, 2, 3, 2}, false},
                                 {{one_f_one_b, 1, 1, 3, 1, 3}, false},
                                 {{one_f_one_b, 1, 1, 4, 3, 1, true, 2}, false},
                                 {{one_f_one_b, 2, 1, 4, 1, 1, true, 2}, true},
                                 {{one_f_one_b, 1, 1, 2, 2, 2}, false}};
  for (Case& c : pipeline_cases()) {
    c.settings.types.fixed_point_sums = true;
    c.settings.step.accumulation_units = 6;
    const RanksOutcome expected = train(c.settings, 1, 6, std::ssize(legs));
    const RunFiles files;
    RanksOutcome found;
    for (int64_t step = 1; step <= std::ssize(legs); ++step) {
      const Leg& leg = legs[static_cast<size_t>(step - 1)];
      const SmallRun::Settings settings = laid_out_ranks(c.settings, leg.layout, 6);
      Outcomes outcomes;
      comm::run_in_process(
          {.ranks = leg.layout.ranks * leg.layout.stages, .timeout_s = 120}, [&](const comm::Group& ranks) {
            SmallRun::Settings own = settings;
            own.ranks = ranks;
            SmallRun run(own);
            const std::string identity = "{}";
            const auto progress = read_run_checkpoint(files.path(), identity, *run.optimizer_state, run.device, ranks);
            EXPECT_EQ(progress ? progress->step : 0, step - 1);
            if (progress) run.step->refresh_weights();
            const StepResult result = run_step(run, step, 6);
            if (leg.background) {
              BackgroundCheckpoint background(ranks);
              background.begin(files.path(), {step, step * 144}, identity, *run.optimizer_state, run.step->context(),
                               2);
              while (!background.advance() && background.is_writing()) {
              }
              if (background.is_writing()) EXPECT_GT(background.wait().bytes, 0U);
            } else {
              write_run_checkpoint(files.path(), {step, step * 144}, identity, *run.optimizer_state, run.device, 2,
                                   ranks);
            }
            RanksOutcome outcome{{result.loss}, {result.grad_norm}, {}, {}};
            if (step == std::ssize(legs)) add_weights(outcome, run);
            outcomes.add(std::move(outcome));
          });
      found.losses.push_back(outcomes.all().losses.front());
      found.norms.push_back(outcomes.all().norms.front());
      found.weights = outcomes.all().weights;
      found.ranges = outcomes.all().ranges;
    }
    EXPECT_EQ(found, expected) << c.name;
  }
}

// A rank that cannot write its part ends all ranks, and the earlier checkpoint is kept.
TEST(Ranks, AFailedPartLeavesTheEarlierCheckpoint) {
  const RunFiles files;
  SmallRun::Settings settings{.threads = 1};
  const auto write = [&](int64_t step, bool fail) {
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun::Settings own = settings;
      own.ranks = ranks;
      SmallRun run(own);
      if (fail && ranks.rank() == 1) {
        ranks.barrier();  // write_run_checkpoint starts with a barrier
        throw_error(ErrorKind::resource, "the disk is full");
      }
      write_run_checkpoint(files.path(), {step, 0}, "{}", *run.optimizer_state, run.device, 2, ranks);
    });
  };
  write(1, false);
  const std::string text = refusal(ErrorKind::resource, [&] { write(2, true); });
  EXPECT_NE(text.find("rank 1: the disk is full"), std::string::npos) << text;
  EXPECT_EQ(checkpoint::list_checkpoints(files.path()), std::vector<int64_t>{1});
  EXPECT_FALSE(std::filesystem::exists(files.path() / "step-2.partial"));
}

TEST(Ranks, AnAbandonedBackgroundCheckpointLeavesNothing) {
  const RunFiles files;
  const std::string text = refusal(ErrorKind::resource, [&] {
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun run(SmallRun::Settings{.threads = 1, .ranks = ranks});
      BackgroundCheckpoint background(ranks);
      if (ranks.rank() == 1) {
        ranks.barrier();  // begin() starts with a barrier
        throw_error(ErrorKind::resource, "no memory");
      }
      background.begin(files.path(), {1, 0}, "{}", *run.optimizer_state, run.step->context(), 2);
      ranks.barrier();
    });
  });
  EXPECT_NE(text.find("rank 1: no memory"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::exists(files.path()));
  EXPECT_TRUE(std::filesystem::is_empty(files.path()));
}

TEST(Ranks, AFailedBackgroundPartLeavesNothing) {
  const RunFiles files;
  const auto write = [&](int64_t step, bool fail) {
    comm::run_in_process({.ranks = 3, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun run(SmallRun::Settings{.threads = 1, .ranks = ranks});
      // Rank 1 cannot reach the folder.
      const std::filesystem::path folder = fail && ranks.rank() == 1 ? files.path() / "broken" : files.path();
      BackgroundCheckpoint background(ranks);
      background.begin(folder, {step, 0}, "{}", *run.optimizer_state, run.step->context(), 2);
      background.wait();
    });
  };
  write(1, false);
  const std::string text = refusal(ErrorKind::unavailable, [&] { write(2, true); });
  EXPECT_NE(text.find("rank 1: "), std::string::npos) << text;
  EXPECT_NE(text.find("broken"), std::string::npos) << text;
  EXPECT_EQ(checkpoint::list_checkpoints(files.path()), std::vector<int64_t>{1});
  EXPECT_FALSE(std::filesystem::exists(files.path() / "step-2.partial"));
}

}  // namespace
}  // namespace ingot::train
