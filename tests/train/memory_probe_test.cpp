#include "train/memory_probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "base/error.h"
#include "comm/in_process.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

class MemoryProbe : public testing::TestWithParam<bool> {
 protected:
  MemoryProbe() {
    settings_.types.fixed_point_sums = GetParam();
    settings_.step.accumulation_units = GetParam() ? 6 : 0;
    settings_.step.micro = 1;
  }
  // A run whose micro-batch of at most `micro` accumulation units was probed with allocations of at most `most` bytes.
  ProbedStep found(SmallRun& run, int64_t micro, size_t most, const comm::Group& ranks = {}) const {
    StepSettings asked = settings_.step;
    asked.micro = micro;
    const std::vector<data::PackedSequence> batch = run.sequences(6);
    run.device.limit(most);
    return probe_memory(run.device, run.registry, run.threads, run.model(), *run.optimizer_state, asked, false, batch,
                        SmallRun::samples(6), comm::data_parallel(ranks));
  }
  StepBytes bytes(int64_t micro) const {
    StepSettings settings = settings_.step;
    settings.micro = micro;
    return Step::bytes(settings_.spec, settings, 0, 0, false, settings_.threads, 0, settings_.visible);
  }
  size_t saved(int64_t micro) const { return bytes(micro).saved; }
  // The largest allocation of the run.
  size_t largest(int64_t micro) const { return std::max(bytes(micro).saved, bytes(micro).scratch); }

  SmallRun::Settings settings_;
};

TEST_P(MemoryProbe, ChoosesTheLargestMicroBatchThatFits) {
  SmallRun run(settings_);
  const ProbedStep tried = found(run, 6, std::numeric_limits<size_t>::max());
  EXPECT_EQ(tried.step->settings().micro, 6);
  EXPECT_EQ(tried.shortage, "");
  EXPECT_EQ(tried.step->peak().saved, saved(6)) << "the probe's step is not a whole micro-batch";
}

TEST_P(MemoryProbe, ReducesTheMicroBatchWhenMemoryIsShort) {
  SmallRun run(settings_);
  const ProbedStep tried = found(run, 6, largest(4));
  EXPECT_EQ(tried.step->settings().micro, 4);  // three quarters of 6
  EXPECT_NE(tried.shortage.find("more than"), std::string::npos) << tried.shortage;
}

TEST_P(MemoryProbe, OneAccumulationUnitThatDoesNotFitIsAnError) {
  SmallRun run(settings_);
  try {
    found(run, 6, saved(1) - 64);
    FAIL() << "expected an out-of-memory error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
  }
}

// Later steps equal those of a run without the probe, and those of smaller micro-batches.
TEST_P(MemoryProbe, DoesNotChangeTheTraining) {
  SmallRun plain(settings_), tried(settings_);
  const std::vector<std::vector<float>> before = state_of(*tried.optimizer_state);
  const ProbedStep probed = found(tried, 6, largest(4));
  EXPECT_EQ(state_of(*tried.optimizer_state), before);
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<data::PackedSequence> batch = plain.sequences(6);
    const StepResult a = plain.run(step, 0.01, batch);
    const StepResult b = probed.step->run(step, 0.01, batch, SmallRun::samples(6));
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(state_of(*plain.optimizer_state), state_of(*tried.optimizer_state));
}

// One of three ranks has little memory. The probe must not communicate gradients.
TEST_P(MemoryProbe, RanksUseTheSmallestMicroBatchOfAll) {
  for (const int zero : {0, 1, 2}) {
    std::mutex mutex;
    std::vector<double> expected;
    comm::run_in_process({.ranks = 3, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun::Settings settings = settings_;
      settings.ranks = ranks;
      settings.zero = zero;
      SmallRun run(settings);
      const ProbedStep tried =
          found(run, 6, ranks.rank() == 1 ? largest(4) : std::numeric_limits<size_t>::max(), ranks);
      EXPECT_EQ(tried.step->settings().micro, 4);
      EXPECT_NE(tried.shortage.find("more than"), std::string::npos) << tried.shortage;
      std::vector<double> losses;
      for (int64_t step = 1; step <= 2; ++step) {
        losses.push_back(tried.step->run(step, 0.01, run.sequences(2), SmallRun::samples(2)).loss);
        losses.push_back(run.step->ranks().all_max(losses.back()));
      }
      const std::lock_guard lock(mutex);
      if (expected.empty()) expected = losses;
      EXPECT_EQ(losses, expected) << "rank " << ranks.rank();
    });
    EXPECT_NE(expected[0], expected[2]) << "the weights did not change";
  }
}

// One stage of a pipeline has little memory: both are made again with the smaller micro-batch, and train together.
TEST_P(MemoryProbe, StagesUseTheSmallestMicroBatchOfAll) {
  SmallRun::Settings settings = settings_;
  settings.stages = 2;
  settings.step.sequences = 6;
  const auto largest_of = [&](int64_t micro, const SmallRun& run) {
    StepSettings step = settings.step;
    step.micro = micro;
    const StepBytes bytes = Step::bytes(run.spec, step, 0, 0, false, settings.threads,
                                        run.optimizer_state->update_bytes(), true, run.optimizer_state->share());
    return std::max(bytes.saved, bytes.scratch);
  };
  comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& ranks) {
    SmallRun::Settings own = settings;
    own.ranks = ranks;
    SmallRun run(own);
    if (ranks.rank() == 1) EXPECT_GT(largest_of(6, run), largest_of(4, run));
    StepSettings asked = settings.step;
    asked.micro = 6;
    const std::vector<data::PackedSequence> batch = run.sequences(6);
    run.device.limit(ranks.rank() == 1 ? largest_of(4, run) : std::numeric_limits<size_t>::max());
    const ProbedStep tried = probe_memory(run.device, run.registry, run.threads, run.model(), *run.optimizer_state,
                                          asked, false, batch, SmallRun::samples(6), run.step->grid());
    EXPECT_EQ(tried.step->settings().micro, 4);
    EXPECT_NE(tried.shortage.find("rank 1: "), std::string::npos) << tried.shortage;
    const double probed = tried.step->run(1, 0.01, batch, SmallRun::samples(6)).loss;
    SmallRun whole(settings_);
    EXPECT_EQ(probed, whole.run(1, 0.01, batch).loss);
  });
}

TEST_P(MemoryProbe, OutOfMemoryOnOneRankIsAnErrorOfAll) {
  std::atomic<int> errors{0};
  try {
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& ranks) {
      SmallRun::Settings settings = settings_;
      settings.ranks = ranks;
      SmallRun run(settings);
      try {
        found(run, 2, ranks.rank() == 1 ? saved(1) - 64 : std::numeric_limits<size_t>::max(), ranks);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::resource);
        ++errors;
        throw;
      }
    });
    ADD_FAILURE() << "expected an out-of-memory error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
  }
  EXPECT_EQ(errors, 2);
}

INSTANTIATE_TEST_SUITE_P(Sums, MemoryProbe, testing::Bool(),
                         [](const auto& i) { return i.param ? "bitwise" : "fast"; });

}  // namespace
}  // namespace ingot::train
