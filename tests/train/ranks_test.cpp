// Steps of several ranks: what they come to, whoever computes which part and keeps which state.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "comm/in_process.h"
#include "tensor/tolerance.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

// What ranks must agree on, and what a run is known by.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::vector<float>> weights;
  std::vector<int32_t> ranges;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Case {
  const char* name;
  SmallRun::Settings settings;
};

// Tied and untied heads, an adapter with dropout, experts; clipping is on in all. The vocabulary makes the embedding
// larger than a block of elements, so that it is divided.
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
  add("experts", [](SmallRun::Settings& s) {
    s.spec.family = "mixtral";
    s.spec.experts = 4;
    s.spec.experts_per_token = 2;
  });
  return all;
}

Outcome train_rank(SmallRun::Settings settings, const comm::Group& ranks, int64_t sequences, int64_t steps) {
  settings.ranks = ranks;
  SmallRun run(settings);
  Outcome outcome;
  const std::vector<data::PackedSequence> all = run.sequences(sequences);
  const std::vector<int64_t> samples = SmallRun::samples(sequences);
  const Range share = share_of(sequences, settings.step.unit, ranks.rank(), ranks.size());
  for (int64_t step = 1; step <= steps; ++step) {
    StepResult result;
    do {
      run.step->begin(step, 1e-2, std::span(all).subspan(share.begin, share.count()),
                      std::span(samples).subspan(share.begin, share.count()));
      result = run.step->finish();
    } while (result.again);
    EXPECT_FALSE(result.skipped);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  for (const TrainedTensor& t : run.trained->tensors()) outcome.weights.push_back(floats(t.weight));
  if (run.trained->ranges()) {
    const auto* ranges = run.trained->ranges().as<int32_t>();
    outcome.ranges.assign(ranges, ranges + run.trained->tensors().size());
  }
  return outcome;
}

// Of rank 0; the others' must be equal.
Outcome train(const SmallRun::Settings& settings, int ranks, int64_t sequences = 6, int64_t steps = 3) {
  std::mutex mutex;
  std::map<int, Outcome> outcomes;
  comm::run_in_process({.ranks = ranks, .timeout_s = 120}, [&](const comm::Group& group) {
    Outcome outcome = train_rank(settings, group, sequences, steps);
    const std::lock_guard lock(mutex);
    outcomes[group.rank()] = std::move(outcome);
  });
  for (const auto& [rank, outcome] : outcomes) EXPECT_EQ(outcome, outcomes[0]) << "rank " << rank;
  return outcomes[0];
}

TEST(Ranks, FixedSumsAreTheSameBitsForAnyRanksMicroBatchesAndStages) {
  for (Case& c : cases()) {
    c.settings.types.fixed_sums = true;
    c.settings.step.units = 6;
    const Outcome expected = train(c.settings, 1);
    for (const int ranks : {2, 3}) {
      for (const int zero : {0, 1, 2}) {
        for (const int64_t micro : {1, 2, 8}) {
          c.settings.zero = zero;
          c.settings.step.micro = micro;
          EXPECT_EQ(train(c.settings, ranks), expected) << c.name << ", " << ranks << " ranks, zero " << zero;
        }
      }
    }
  }
}

// A unit of two sequences, three units over two ranks and four: one has none.
TEST(Ranks, MayHaveFewerUnitsOrNone) {
  for (const bool fixed : {true, false}) {
    SmallRun::Settings settings{.threads = 1};
    settings.types.fixed_sums = fixed;
    settings.step.unit = 2;
    settings.step.units = fixed ? 3 : 0;
    const Outcome expected = train(settings, 1);
    for (const int ranks : {2, 4}) {
      for (const int zero : {0, 1, 2}) {
        settings.zero = zero;
        const Outcome found = train(settings, ranks);
        if (fixed) EXPECT_EQ(found, expected);
        for (size_t i = 0; i < expected.losses.size(); ++i) {
          EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, tolerance(DType::f32, 24 * 6)) << i;
        }
      }
    }
  }
}

// In fp32 the ranks' sums are added in their order: rounding differs from one rank's, not from run to run.
TEST(Ranks, SumsInFp32AgreeToRoundingAndRepeat) {
  for (Case& c : cases()) {
    if (c.settings.step.activation != DType::f32) continue;
    const Outcome expected = train(c.settings, 1);
    for (const int zero : {0, 1, 2}) {
      c.settings.zero = zero;
      c.settings.step.micro = 2;
      const Outcome found = train(c.settings, 3);
      EXPECT_EQ(train(c.settings, 3), found) << c.name;
      EXPECT_NE(found.weights, expected.weights) << "sums of ranks round like one rank's: fixed sums prove nothing";
      for (size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, tolerance(DType::f32, 24 * 6)) << c.name;
        EXPECT_NEAR(found.norms[i] / expected.norms[i], 1, 10 * tolerance(DType::f32, 24 * 6)) << c.name;
      }
    }
  }
}

}  // namespace
}  // namespace ingot::train
