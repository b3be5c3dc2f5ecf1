// The training loop on an asynchronous device, which receives each step before the previous result is read.
#include "train/trainer.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "comm/failure.h"
#include "comm/in_process.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "tensor/tolerance.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"
#include "tests/parity/golden.h"
#include "train/initialise.h"

namespace ingot::parity {
namespace {

constexpr int64_t length = 16;
constexpr int64_t last = 6;

// Records the events of a run in order.
class RecordingObserver : public train::Observer {
 public:
  void on_step(const train::StepEvent& event) override {
    lines.push_back(fmt::format("step {}{}", event.step, event.skipped ? " skipped" : ""));
    losses.push_back(event.loss);
    norms.push_back(event.grad_norm);
    energies.push_back(event.energy_j);
    EXPECT_GT(event.step_s, 0);
    EXPECT_EQ(event.tokens, tokens_after.at(static_cast<size_t>(event.step)));
    const double tokens = static_cast<double>(event.tokens - tokens_after[static_cast<size_t>(event.step) - 1]);
    EXPECT_NEAR(event.tokens_per_s * event.step_s, tokens, 1e-6);
    EXPECT_DOUBLE_EQ(event.padding, 1 - tokens / (2 * length));
  }
  void on_eval(const train::EvalEvent& event) override {
    lines.push_back(fmt::format("eval {}", event.step));
    losses.push_back(event.loss);
  }
  void on_checkpoint(const train::CheckpointEvent& event) override {
    lines.push_back(fmt::format("checkpoint {}", event.step));
  }
  void on_warning(const train::WarningEvent& event) override {
    lines.push_back(fmt::format("warning {}", event.step));
    warnings.push_back(event.message);
  }
  void on_end(const train::EndEvent& event) override {
    if (event.reason == "failed") lines.push_back(fmt::format("failed {}: {}", event.step, event.error));
  }

  std::vector<int64_t> tokens_after = {0};  // the data's tokens after each step, without padding
  std::vector<std::string> lines;
  std::vector<double> losses;                   // of steps and evaluations
  std::vector<double> norms;                    // of steps
  std::vector<std::optional<double>> energies;  // of steps
  std::vector<std::string> warnings;
};

// A data set that delivers sequences late.
class SlowSet : public data::SequenceSet {
 public:
  SlowSet(const data::SequenceSet& set, std::chrono::milliseconds late) : set_(set), late_(late) {}
  int64_t num_sequences() const override { return set_.num_sequences(); }
  int64_t sequence_length() const override { return set_.sequence_length(); }
  data::PackedSequence get(int64_t index) const override {
    std::this_thread::sleep_for(late_);
    return set_.get(index);
  }
  const data::DatasetStatistics& statistics() const override { return set_.statistics(); }
  const std::string& content_hash() const override { return set_.content_hash(); }

 private:
  const data::SequenceSet& set_;
  std::chrono::milliseconds late_;
};

struct Options {
  bool background = false;        // write checkpoints in the background
  bool fixed_point_sums = false;  // sum gradients in fixed point
  std::optional<int32_t> range;   // initial range of contributions
  std::function<std::optional<double>()> joules;
  int64_t steps = last;
  std::chrono::milliseconds late{0};                  // delay of each sequence
  int64_t every = 3;                                  // steps between checkpoints
  double minutes = 0;                                 // between checkpoints
  std::function<double(int64_t steps)> clock;         // seconds on the clock after that many reported steps
  std::function<uint64_t(int64_t steps)> free_bytes;  // free bytes of the disk, likewise
  const FileWatch* files = nullptr;
  comm::Group ranks;
  int64_t traced = 0;                              // steps
  std::vector<std::string>* of_failure = nullptr;  // gets the lines of a run that fails
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    std::string lines;
    for (int i = 0; i < 12; ++i) lines += "{\"text\": \"document number " + std::to_string(i) + "\"}\n";
    const std::vector<data::Source> sources = {{files_.file("a.jsonl", lines)}};
    ThreadPool pool(1);
    data_.emplace(data::Dataset::build(sources, *tokenizer_, nullptr, {.packing = {.sequence_length = length}}, pool));
    eval_.emplace(data::Dataset::build(sources, *tokenizer_, nullptr, {.packing = {.sequence_length = length}}, pool));
    spec_.family = "llama";
    spec_.vocab = tokenizer_->size();
    spec_.hidden = 16;
    spec::LayerSpec layer;
    layer.attention.heads = 2;
    layer.attention.kv_heads = 1;
    layer.attention.head_dim = 8;
    layer.mlp = spec::Dense{.features = 24};
    spec_.layers = {layer};
    spec_.context = 32;
    spec_.initializer_range = 0.2;
  }

  // Continues from the newest checkpoint in the run folder, until `before` asks to stop before a step.
  RecordingObserver run(Machine& machine, const std::string& name,
                        const std::function<bool(int64_t step, const Tensor& weight)>& before, Options options = {}) {
    const WeightSet weights = train::random_weights(*machine.device, spec_, DType::f32, 11);
    const auto model = models::make_model(spec_, weights, *machine.device);
    train::OptimizerState optimizer_state(*machine.device, spec_, weights, DType::f32,
                                          {.fixed_point_sums = options.fixed_point_sums},
                                          {options.ranks.rank(), options.ranks.size(), 0});
    if (options.range) {
      const std::vector<int32_t> ranges(optimizer_state.tensors().size(), *options.range);
      machine.device->copy_from_host(optimizer_state.ranges().data, ranges.data(), optimizer_state.ranges().bytes());
    }
    train::Step step(*machine.device, machine.registry, machine.threads, *model, optimizer_state,
                     {.sequence_length = length, .accumulation_units = options.fixed_point_sums ? 2 : 0}, false,
                     comm::data_parallel(options.ranks));
    train::TrainerSettings settings;
    settings.steps = options.steps;
    settings.schedule = {.lr = 1e-2, .steps = options.steps};
    settings.eval_every = 4;
    settings.checkpoint_every = options.every;
    settings.checkpoint_minutes = options.minutes;
    settings.background_checkpoints = options.background;
    settings.run_dir = files_.path() / name;
    settings.identity = "{}";
    settings.joules = options.joules;
    settings.files = options.files;
    settings.traced_steps = options.traced;
    RecordingObserver diary;
    if (options.clock) settings.clock = [&] { return options.clock(std::ssize(diary.norms)); };
    if (options.free_bytes) {
      settings.free_bytes = [&](const auto&) { return options.free_bytes(std::ssize(diary.norms)); };
    }
    const std::optional<spec::LoraSpec> no_adapter;
    const data::Sampler order(data_->num_sequences(), 0, 2);
    for (int64_t each = 0; each < options.steps; ++each) {
      int64_t tokens = diary.tokens_after.back();
      for (const int64_t sample : order.step_samples(each)) tokens += data::num_tokens(data_->get(sample));
      diary.tokens_after.push_back(tokens);
    }
    const SlowSet slow(*data_, options.late);
    train::Trainer trainer(step, spec_, weights, optimizer_state, no_adapter, slow, order, &*eval_, settings, diary);
    int64_t next = trainer.resume() + 1;
    const auto stop = [&] { return before(next++, optimizer_state.tensors().front().weight); };
    try {
      trainer.run(stop, [](int64_t) {});
    } catch (...) {
      const Error error = comm::error_of_exception();
      options.ranks.fail(error);
      trainer.report_failure(error);
      if (options.of_failure != nullptr) *options.of_failure = diary.lines;
      throw;
    }
    return diary;
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& expected) const {
    const double bound = tolerance(DType::f32, last * chain_length(spec_, 2 * length));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isfinite(expected[i])) EXPECT_NEAR(found[i] / expected[i], 1, bound) << i;
    }
  }

  data::TempFolder files_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = data::byte_tokenizer();
  std::optional<data::Dataset> data_, eval_;
  spec::ModelSpec spec_;
};

TEST_F(TrainerTest, EventsAreThoseOfTheCpuInTheSameOrder) {
  Machine cpu(1), sim(1, "sim32");
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const RecordingObserver expected = run(cpu, "cpu", whole);
  const RecordingObserver found = run(sim, "sim", whole);
  EXPECT_EQ(found.lines, (std::vector<std::string>{"eval 0", "step 1", "step 2", "step 3", "checkpoint 3", "step 4",
                                                   "eval 4", "step 5", "step 6", "eval 6", "checkpoint 6"}));
  EXPECT_EQ(found.lines, expected.lines);
  expect_near(found.losses, expected.losses);
  expect_near(found.norms, expected.norms);
}

TEST_F(TrainerTest, ReportsTheEnergyOfEachStep) {
  Machine machine(1);
  const auto whole = [](int64_t, const Tensor&) { return false; };
  EXPECT_EQ(run(machine, "unknown", whole).energies, std::vector<std::optional<double>>(last));
  double total = 1000, used = 0;
  const auto joules = [&] { return total += ++used; };  // 1 before the first step, then 2, 3, ...
  EXPECT_EQ(run(machine, "known", whole, {.joules = joules}).energies,
            (std::vector<std::optional<double>>{2, 3, 4, 5, 6, 7}));
}

TEST_F(TrainerTest, SkipsFailedEnergyReadings) {
  Machine machine(1);
  int readings = 0;
  const auto joules = [&]() -> std::optional<double> {
    ++readings;
    return readings == 3 ? std::nullopt : std::optional(10.0 * readings);
  };
  const auto whole = [](int64_t, const Tensor&) { return false; };
  EXPECT_EQ(run(machine, "fails", whole, {.joules = joules}).energies,
            (std::vector<std::optional<double>>{10, std::nullopt, 20, 10, 10, 10}));
}

// The last of three ranks gets its data late. Rank 0 reports it, and the energy of all ranks.
TEST_F(TrainerTest, ReportsRanksThatDelayTheOthers) {
  RecordingObserver reported;
  comm::run_in_process({.ranks = 3, .timeout_s = 120}, [&](const comm::Group& ranks) {
    Machine machine(1);
    const auto whole = [](int64_t, const Tensor&) { return false; };
    const double power = 1 << ranks.rank();
    double taken = 0;
    RecordingObserver diary = run(machine, "ranks", whole,
                                  {.joules = [&, power] { return taken += power; },
                                   .steps = 20,
                                   .late = std::chrono::milliseconds(ranks.rank() == 2 ? 100 : 0),
                                   .ranks = ranks});
    if (ranks.rank() == 0) reported = std::move(diary);
  });
  EXPECT_EQ(reported.energies, std::vector<std::optional<double>>(20, 7.0));
  const auto about = [&](const char* words) {
    return std::ranges::count_if(reported.warnings,
                                 [&](const std::string& w) { return w.find(words) != std::string::npos; });
  };
  EXPECT_EQ(about("waiting for data: the loader"), 1) << fmt::format("{}", fmt::join(reported.warnings, "\n"));
  EXPECT_EQ(about("rank 2 ("), 1) << fmt::format("{}", fmt::join(reported.warnings, "\n"));
  EXPECT_EQ(about("most of it waiting for data"), 1);
}

// Background checkpoints do not change the run or the files, and are reported when they are complete.
TEST_F(TrainerTest, WritesCheckpointsInTheBackground) {
  for (const char* device : {"cpu", "sim32"}) {
    Machine machine(1, device);
    const auto whole = [](int64_t, const Tensor&) { return false; };
    RecordingObserver expected = run(machine, fmt::format("{}-between", device), whole);
    RecordingObserver found = run(machine, fmt::format("{}-beside", device), whole, {.background = true});
    EXPECT_EQ(found.losses, expected.losses) << device;
    const auto reported = std::ranges::find(found.lines, "checkpoint 3");
    ASSERT_NE(reported, found.lines.end()) << device;
    EXPECT_GT(reported, std::ranges::find(found.lines, "step 3")) << device;
    found.lines.erase(reported);
    std::erase(expected.lines, "checkpoint 3");
    EXPECT_EQ(found.lines, expected.lines) << device;
    for (const char* step : {"step-3", "step-6"}) {
      const auto file = [&](const char* run) {
        return files_.path() / fmt::format("{}-{}", device, run) / "checkpoints" / step / "manifest.json";
      };
      EXPECT_EQ(read_file(file("beside")), read_file(file("between"))) << device << " " << step;
    }
  }
}

// On a clock on which each step takes a minute.
TEST_F(TrainerTest, WritesTimedCheckpoints) {
  Machine machine(1);
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const auto clock = [](int64_t steps) { return 1000 + 60.0 * static_cast<double>(steps); };
  const auto checkpoints = [](const RecordingObserver& diary) {
    std::vector<std::string> found;
    std::ranges::copy_if(diary.lines, std::back_inserter(found),
                         [](const std::string& line) { return line.starts_with("checkpoint"); });
    return found;
  };
  const RecordingObserver expected = run(machine, "never", whole, {.every = 0, .clock = clock});
  EXPECT_EQ(checkpoints(expected), std::vector<std::string>{"checkpoint 6"});
  const std::vector<std::string> every_second = {"checkpoint 2", "checkpoint 4", "checkpoint 6"};
  const RecordingObserver found = run(machine, "minutes", whole, {.every = 0, .minutes = 2, .clock = clock});
  EXPECT_EQ(checkpoints(found), every_second);
  EXPECT_EQ(found.losses, expected.losses);
  // A checkpoint of checkpoint.every restarts the clock.
  EXPECT_EQ(checkpoints(run(machine, "both", whole, {.every = 2, .minutes = 3, .clock = clock})), every_second);
  // In the background: a checkpoint that is still being written delays the next one.
  const RecordingObserver beside =
      run(machine, "beside", whole, {.background = true, .every = 0, .minutes = 2, .clock = clock});
  EXPECT_EQ(beside.losses, expected.losses);
  EXPECT_EQ(std::ranges::count(beside.lines, "checkpoint 2"), 1);
  // A run resumes from a timed checkpoint.
  std::filesystem::remove_all(files_.path() / "minutes" / "checkpoints" / "step-6");
  const RecordingObserver rest = run(machine, "minutes", whole, {.every = 0, .clock = clock});
  EXPECT_EQ(rest.norms, std::vector<double>(expected.norms.begin() + 4, expected.norms.end()));
}

// A timed checkpoint is delayed until it takes at most a twentieth of the time, estimated by the last one's pause.
TEST_F(TrainerTest, TimedCheckpointsTakeASmallShareOfTheTime) {
  Machine machine(1);
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const auto clock = [&](int64_t steps) {
    // The first checkpoint pauses for 9 s, so the next is due after 180.
    const bool paused = std::filesystem::exists(files_.path() / "run/checkpoints");
    return 60.0 * static_cast<double>(steps) + (paused ? 9 : 0);
  };
  const RecordingObserver found = run(machine, "run", whole, {.every = 0, .minutes = 1, .clock = clock});
  std::vector<std::string> written;
  std::ranges::copy_if(found.lines, std::back_inserter(written),
                       [](const std::string& line) { return line.starts_with("checkpoint"); });
  EXPECT_EQ(written, (std::vector<std::string>{"checkpoint 1", "checkpoint 4", "checkpoint 5", "checkpoint 6"}));
}

// The disk has space for a checkpoint after the second step and none after the third to fifth.
TEST_F(TrainerTest, ATimedCheckpointWaitsForDiskSpace) {
  Machine machine(1);
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const auto clock = [](int64_t steps) { return 60.0 * static_cast<double>(steps); };
  const auto free_bytes = [](int64_t steps) { return steps == 1 || (steps > 2 && steps < 5) ? 1000 : 100000000; };
  const RecordingObserver found =
      run(machine, "full", whole, {.steps = 8, .every = 0, .minutes = 1, .clock = clock, .free_bytes = free_bytes});
  EXPECT_EQ(found.lines,
            (std::vector<std::string>{"eval 0", "step 1", "warning 1", "step 2", "checkpoint 2", "step 3", "warning 3",
                                      "step 4", "eval 4", "step 5", "checkpoint 5", "step 6", "checkpoint 6", "step 7",
                                      "checkpoint 7", "step 8", "eval 8", "checkpoint 8"}));
  ASSERT_EQ(found.warnings.size(), 2U);
  EXPECT_NE(found.warnings[0].find("1000 bytes free"), std::string::npos) << found.warnings[0];
}

// With steps in flight on the device, the checkpoint is written after them.
TEST_F(TrainerTest, TimedCheckpointsWaitForStepsInFlight) {
  Machine machine(1, "sim32");
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const RecordingObserver found = run(
      machine, "sim", whole,
      {.steps = 4, .every = 0, .minutes = 1, .clock = [](int64_t steps) { return 60.0 * static_cast<double>(steps); }});
  EXPECT_EQ(found.lines, (std::vector<std::string>{"eval 0", "step 1", "step 2", "checkpoint 2", "step 3", "step 4",
                                                   "eval 4", "checkpoint 4"}));
}

// Other ranks' clocks do not matter: all ranks write, or none does.
TEST_F(TrainerTest, RankZerosClockDecides) {
  RecordingObserver first;
  comm::run_in_process({.ranks = 3, .timeout_s = 120}, [&](const comm::Group& ranks) {
    Machine machine(1);
    const auto whole = [](int64_t, const Tensor&) { return false; };
    int64_t calls = 0;
    Options options{.every = 0, .minutes = 2, .ranks = ranks};
    options.clock = [&](int64_t steps) {
      return ranks.rank() == 0 ? 60.0 * static_cast<double>(steps) : 1000.0 * static_cast<double>(++calls);
    };
    RecordingObserver diary = run(machine, "ranks", whole, options);
    if (ranks.rank() == 0) first = std::move(diary);
  });
  EXPECT_EQ(first.lines,
            (std::vector<std::string>{"eval 0", "step 1", "step 2", "checkpoint 2", "step 3", "step 4", "eval 4",
                                      "checkpoint 4", "step 5", "step 6", "eval 6", "checkpoint 6"}));
}

// A file that weights are mapped from is modified after the second step. No checkpoint or evaluation may then claim to
// be of one model.
TEST_F(TrainerTest, EndsWhenAModelFileIsModified) {
  Machine machine(1);
  for (const int64_t every : {3, 0}) {  // a checkpoint comes first, or the evaluation after step 4
    const std::string name = fmt::format("every-{}", every);
    const std::filesystem::path path = files_.file(name + ".safetensors", "weights");
    const MappedFile file(path);
    FileWatch watch;
    watch.add(file);
    int64_t started = 0;
    const auto write = [&](int64_t step, const Tensor&) {
      started = step;
      if (step == 3) std::ofstream(path, std::ios::app) << "more";
      return false;
    };
    try {
      run(machine, name, write, {.every = every, .files = &watch});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_NE(error.message().find(path.string()), std::string::npos) << error.message();
    }
    EXPECT_EQ(started, every == 3 ? 3 : 4);
    EXPECT_FALSE(std::filesystem::exists(files_.path() / name / "checkpoints/step-3"));
  }
}

// One of two ranks dies after the second of four traced steps. Both write what they have done; rank 0 reports the end.
TEST_F(TrainerTest, WritesTracesAndTheEndOfARunThatFails) {
  std::array<std::vector<std::string>, 2> lines;
  const auto train = [&](const comm::Group& ranks) {
    Machine machine(1);
    const auto dies = [&](int64_t step, const Tensor&) {
      if (step == 3 && ranks.rank() == 1) throw_error(ErrorKind::unavailable, "rank 1 has lost its device");
      return false;
    };
    run(machine, "dies", dies,
        {.ranks = ranks, .traced = 4, .of_failure = &lines.at(static_cast<size_t>(ranks.rank()))});
  };
  EXPECT_THROW(comm::run_in_process({.ranks = 2, .timeout_s = 120}, train), Error);
  EXPECT_EQ(lines[0], (std::vector<std::string>{"eval 0", "step 1", "step 2",
                                                "failed 2: rank 1 failed: rank 1 has lost its device"}));
  EXPECT_EQ(lines[1], std::vector<std::string>());
  for (const int rank : {0, 1}) {
    const std::filesystem::path path = files_.path() / "dies" / "trace" / fmt::format("rank-{}.json", rank);
    const nlohmann::ordered_json trace = parse_json(read_file(path));
    std::map<std::string, int> counts;
    for (const nlohmann::ordered_json& event : trace["traceEvents"]) ++counts[event["name"]];
    for (const char* name : {"forward 0", "backward 0", "update 0"}) EXPECT_EQ(counts[name], 2) << name;
  }
}

TEST_F(TrainerTest, StopsAfterStepsInFlightAndResumes) {
  Machine sim(1, "sim32");
  const auto whole = [](int64_t, const Tensor&) { return false; };
  const RecordingObserver expected = run(sim, "whole", whole);
  RecordingObserver found = run(sim, "parts", [](int64_t step, const Tensor&) { return step == 3; });
  const RecordingObserver rest = run(sim, "parts", whole);
  EXPECT_EQ(found.lines, (std::vector<std::string>{"eval 0", "step 1", "step 2", "checkpoint 2"}));
  EXPECT_EQ(rest.lines.front(), "step 3");
  found.losses.insert(found.losses.end(), rest.losses.begin(), rest.losses.end());
  EXPECT_EQ(found.losses, expected.losses);
}

// Fixed-point sums: the ranges are part of the checkpoint. A step that is repeated with a larger range leaves no trace,
// however many later steps were in flight.
TEST_F(TrainerTest, FixedPointSumsResumeBitForBit) {
  for (const char* device : {"cpu", "sim32"}) {
    Machine machine(1, device);
    const auto named = [&](const char* name) { return fmt::format("{}-{}", device, name); };
    const auto whole = [](int64_t, const Tensor&) { return false; };
    const RecordingObserver expected = run(machine, named("whole"), whole, {.fixed_point_sums = true});
    RecordingObserver found =
        run(machine, named("parts"), [](int64_t step, const Tensor&) { return step == 3; }, {.fixed_point_sums = true});
    const RecordingObserver rest = run(machine, named("parts"), whole, {.fixed_point_sums = true});
    found.losses.insert(found.losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(found.losses, expected.losses) << device;

    const RecordingObserver again = run(machine, named("small"), whole, {.fixed_point_sums = true, .range = -60});
    EXPECT_EQ(again.lines, expected.lines) << device;
    expect_near(again.losses, expected.losses);
  }
}

// A weight is infinite during step 2. Step 3 is in flight and must be repeated.
TEST_F(TrainerTest, ContinuesAfterASkippedStep) {
  Machine cpu(1), sim(1, "sim32");
  const auto broken = [&](Machine& machine) {
    return [&machine, was = 0.0F](int64_t step, const Tensor& weight) mutable {
      Device& device = *machine.device;
      auto* one = static_cast<float*>(weight.data) + data::bos * 16;
      const float infinite = INFINITY;
      if (step == 2) {
        device.copy_to_host(&was, one, sizeof was);
        device.copy_from_host(one, &infinite, sizeof infinite);
      }
      if (step == 3) device.copy_from_host(one, &was, sizeof was);
      return false;
    };
  };
  const RecordingObserver expected = run(cpu, "cpu", broken(cpu));
  const RecordingObserver found = run(sim, "sim", broken(sim));
  EXPECT_EQ(std::ranges::count(found.lines, "step 2 skipped"), 1);
  EXPECT_EQ(std::ranges::count(found.lines, "warning 2"), 1);
  EXPECT_EQ(found.lines, expected.lines);
  expect_near(found.losses, expected.losses);
  expect_near(found.norms, expected.norms);
}

}  // namespace
}  // namespace ingot::parity
