// What overlaps in a step, by the order in which it was enqueued.
#include "train/action_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json.h"
#include "comm/in_process.h"
#include "tests/train/layouts.h"

namespace ingot::train {
namespace {

using Entries = std::vector<ActionLog::Entry>;

bool is_compute(const ActionLog::Entry& entry) {
  return entry.action == Action::forward || entry.action == Action::backward;
}

// Calls check(run, entries) on each rank with those of its second step.
template <class Check>
void for_steps(const SmallRun::Settings& settings, const Layout& layout, Check check) {
  std::mutex mutex;
  comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out(settings, layout);
    own.ranks = world;
    SmallRun run(own);
    run_step(run, 1);
    ActionLog log;
    run.step->set_log(&log);
    run_step(run, 2);
    run.step->set_log(nullptr);
    run_step(run, 3);
    const std::lock_guard lock(mutex);
    check(run, log.entries());
  });
}

// In place of the layer of a bucket: the number of the layers' units, which are 1 + layer.
int64_t lowest_unit(const SmallRun& run, int64_t bucket) {
  const int64_t layer = run.optimizer_state->buckets()[static_cast<size_t>(bucket)].layer;
  return 1 + std::min(layer, run.spec.num_layers());
}

// Between a bucket's last computation and the next one its reduction begins.
TEST(ActionLog, ReductionsBeginBeforeEarlierBlocksCompute) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{16} << 10}) {
      for (const bool adapter : {false, true}) {
        if (zero == 3 && !adapter && bytes > 0) continue;
        SmallRun::Settings settings{.threads = 1, .bucket_bytes = bytes};
        settings.step.recompute = spec::Recompute::full;
        if (adapter) settings.lora = small_lora();
        for_steps(settings, {.tp = 1, .stages = 1, .dp = 2, .zero = zero, .recompute = spec::Recompute::full},
                  [&](const SmallRun& run, const Entries& entries) {
                    int64_t reductions = 0;
                    for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
                      if (entry->action != Action::reduce || !entry->begins) continue;
                      ++reductions;
                      const int64_t unit = lowest_unit(run, entry->index);
                      const auto before = std::find_if(std::reverse_iterator(entry), entries.rend(), is_compute);
                      ASSERT_NE(before, entries.rend());
                      EXPECT_FALSE(before->begins);
                      EXPECT_EQ(1 + before->index, unit);
                      const auto next = std::find_if(entry, entries.end(), is_compute);
                      if (unit == 0 || (adapter && unit == 1)) continue;  // backward ends there
                      ASSERT_NE(next, entries.end());
                      EXPECT_EQ(next->action, Action::backward);
                      EXPECT_TRUE(next->begins);
                      EXPECT_EQ(1 + next->index, unit - 1) << "zero " << zero;
                    }
                    const int64_t times = zero >= 2 ? sequences / 2 : 1;
                    EXPECT_EQ(reductions, std::ssize(run.optimizer_state->buckets()) * times);
                    const auto ends = [](const auto& e) { return e.action == Action::reduce && !e.begins; };
                    EXPECT_EQ(std::ranges::count_if(entries, ends), reductions);
                  });
      }
    }
  }
}

// The weights of a bucket are gathered while the parameters of the next are updated, and all are there for the next
// step. With Muon a bucket may have several runs.
TEST(ActionLog, UpdatedWeightsAreGatheredWhileTheNextBucketIsUpdated) {
  for (const int zero : {1, 2}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{16} << 10}) {
      for (const OptimizerName optimizer : {OptimizerName::adamw, OptimizerName::muon}) {
        SmallRun::Settings settings{.threads = 1, .bucket_bytes = bytes};
        settings.types.optimizer = optimizer;
        for_steps(settings, {.tp = 1, .stages = 1, .dp = 2, .zero = zero},
                  [&](const SmallRun& run, const Entries& log) {
                    const std::vector<Bucket>& buckets = run.optimizer_state->buckets();
                    const auto bucket_of = [&](int64_t parameter) {
                      return std::ranges::find_if(
                                 buckets,
                                 [&](const Bucket& b) {
                                   return static_cast<int64_t>(run.optimizer_state->tensors()[b.last - 1].number) >=
                                          parameter;
                                 }) -
                             buckets.begin();
                    };
                    int64_t started = 0, ended = 0;
                    for (auto entry = log.begin(); entry != log.end(); ++entry) {
                      if (entry->action == Action::update && entry->begins) EXPECT_EQ(bucket_of(entry->index), started);
                      if (entry->action != Action::gather_updated) continue;
                      EXPECT_EQ(entry->index, entry->begins ? started : ended);
                      ++(entry->begins ? started : ended);
                      EXPECT_EQ(ended > 0, started == std::ssize(buckets) && !entry->begins);
                    }
                    EXPECT_EQ(started, std::ssize(buckets));
                    EXPECT_EQ(ended, started);
                  });
      }
    }
  }
}

// While a layer computes, the weights of the next are gathered: only what a micro-batch begins with is not gathered
// ahead.
TEST(ActionLog, WeightsAreGatheredWhileTheLayerBeforeComputes) {
  for (const auto& [adapter, ep] : {std::pair(false, 1), std::pair(true, 1), std::pair(false, 2)}) {
    SmallRun::Settings settings{.threads = 1};
    if (adapter) settings.lora = small_lora();
    if (ep > 1) settings.spec.family = "mixtral";
    for (spec::LayerSpec& layer : settings.spec.layers) {
      if (ep > 1) layer.mlp = spec::Experts{.count = 4, .per_token = 2, .expert = spec::dense_of(layer.mlp)};
    }
    const Layout layout{.tp = 1, .stages = 1, .dp = 2 * ep, .zero = 3, .ep = ep};
    for_steps(settings, layout, [](const SmallRun& run, const Entries& entries) {
      const int64_t units = run.spec.num_layers() + 2;
      int64_t gathered = 0;
      for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
        if (entry->action != Action::gather || !entry->begins) continue;
        ++gathered;
        const auto begins = [](const ActionLog::Entry& e) { return is_compute(e) && e.begins; };
        const auto next = std::find_if(entry, entries.end(), begins);
        ASSERT_NE(next, entries.end());
        if (1 + next->index == entry->index) {
          EXPECT_EQ(entry->index, 0);
          continue;
        }
        const auto use = std::find_if(next + 1, entries.end(), begins);
        ASSERT_NE(use, entries.end());
        EXPECT_EQ(1 + use->index, entry->index);
        const auto arrived = std::find_if(entry, entries.end(), [&](const ActionLog::Entry& e) {
          return e.action == Action::gather && !e.begins && e.index == entry->index;
        });
        EXPECT_TRUE(next < arrived && arrived < use);
      }
      EXPECT_GE(gathered, units + run.spec.num_layers() - 1);
    });
  }
}

using LossesAndState = std::pair<std::vector<double>, std::vector<std::vector<float>>>;

// Two steps at a time: losses, and the state of this rank after the last.
LossesAndState overlapping_steps(SmallRun& run, int64_t steps) {
  const int ranks = run.step->grid().data_ranks();
  const std::vector<data::PackedSequence> all = run.sequences(2 * ranks);
  const std::span batch = std::span(all).subspan(2 * static_cast<size_t>(run.step->grid().data_rank()), 2);
  const std::vector<int64_t> samples = SmallRun::samples(2);
  std::vector<double> losses;
  run.step->begin(1, 1e-2, batch, samples);
  for (int64_t step = 2; step <= steps; ++step) {
    run.step->begin(step, 1e-2, batch, samples);
    losses.push_back(run.step->finish().loss);
  }
  losses.push_back(run.step->finish().loss);
  return {losses, state_of(*run.optimizer_state)};
}

// The parameter's bucket.
const Bucket& bucket_of(const SmallRun& run, int64_t number) {
  return *std::ranges::find_if(run.optimizer_state->buckets(), [&](const Bucket& bucket) {
    return static_cast<int64_t>(run.optimizer_state->tensors()[bucket.last - 1].number) >= number;
  });
}

// A layer of the next step computes before the host updates the parameters of the layer after it, whose first gradient
// is on its way meanwhile.
TEST(ActionLog, HostUpdatesAreDoneWhileTheNextStepComputes) {
  SmallRun::Settings settings{.weights = DType::bf16, .visible = false};
  settings.step.activation = DType::bf16;
  SmallRun on_device(settings);
  const auto expected = overlapping_steps(on_device, 3);
  settings.types.offload = true;
  SmallRun run(settings);
  ActionLog log;
  run.step->set_log(&log);
  EXPECT_EQ(overlapping_steps(run, 3), expected);
  run.step->set_log(nullptr);
  const Entries& entries = log.entries();
  const auto layer_of = [&](int64_t number) { return std::min(bucket_of(run, number).layer, run.spec.num_layers()); };
  int64_t updates = 0, ahead = 0;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->action != Action::host_update || !entry->begins) continue;
    ++updates;
    const int64_t layer = layer_of(entry->index);
    const auto next = std::find_if(entry, entries.end(), is_compute);
    if (next == entries.end()) continue;  // after the last step
    if (layer > -1) {
      const auto before = std::find_if(std::reverse_iterator(entry), entries.rend(), is_compute);
      ASSERT_NE(before, entries.rend());
      EXPECT_EQ(before->action, Action::forward);
      EXPECT_EQ(before->index, layer - 1);
    }
    EXPECT_EQ(next->action, Action::forward);
    EXPECT_EQ(next->index, layer);
    // Gradients that are being copied during this update.
    const auto downloads = [&](bool begins) {
      return std::count_if(entries.begin(), entry, [&](const ActionLog::Entry& e) {
        return e.action == Action::download && e.begins == begins;
      });
    };
    ahead += downloads(true) - downloads(false);
  }
  int64_t matrices = 0;
  for (const TrainedParameter& t : run.optimizer_state->tensors()) matrices += run.optimizer_state->is_offloaded(t);
  EXPECT_EQ(updates, 3 * matrices);
  EXPECT_EQ(ahead, 2 * (matrices - 1));
}

// On several ranks, whose weights are needed where they are gathered: the host updates the parameters of a layer while
// the device computes the second before it, and the weights are gathered while it computes the one before. In fp32 and
// in fixed point these are the bits of updates on the device, and of steps that wait for their updates.
TEST(ActionLog, HostUpdatesOfRanksAreDoneWhileTheNextStepComputes) {
  constexpr int64_t steps = 3;
  for (const bool fixed : {false, true}) {
    for (const Layout& layout : {Layout{.tp = 1, .stages = 1, .dp = 1, .zero = 0, .visible = false},
                                 Layout{.tp = 1, .stages = 1, .dp = 2, .zero = 1, .visible = false},
                                 Layout{.tp = 1, .stages = 1, .dp = 3, .zero = 2, .visible = false},
                                 Layout{.tp = 1, .stages = 1, .dp = 2, .zero = 3, .visible = false}}) {
      SmallRun::Settings settings{.weights = DType::bf16, .threads = 1};
      settings.step.activation = DType::bf16;
      settings.types.fixed_point_sums = fixed;
      settings.step.accumulation_units = fixed ? 2 * layout.dp : 0;
      comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
        SmallRun::Settings own = laid_out(settings, layout);
        own.ranks = world;
        SmallRun on_device(own);
        const LossesAndState expected = overlapping_steps(on_device, steps);
        own.types.offload = true;
        SmallRun waiting(own);
        const std::vector<data::PackedSequence> all = waiting.sequences(2 * layout.dp);
        const std::span batch = std::span(all).subspan(2 * static_cast<size_t>(world.rank()), 2);
        for (int64_t step = 1; step <= steps; ++step) waiting.step->run(step, 1e-2, batch, SmallRun::samples(2));
        EXPECT_EQ(state_of(*waiting.optimizer_state), expected.second);
        SmallRun run(own);
        ActionLog log;
        run.step->set_log(&log);
        EXPECT_EQ(overlapping_steps(run, steps), expected) << "zero " << layout.zero << ", fixed " << fixed;
        run.step->set_log(nullptr);
        const Entries& entries = log.entries();
        const auto starts = [](const ActionLog::Entry& e) { return is_compute(e) && e.begins; };
        int64_t updates = 0, during_forward = 0;
        for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
          if (!entry->begins) continue;
          // From the layer that computes before to the next: from `first` on, and not after `last`.
          const auto expect_between = [&](int64_t first, int64_t last) {
            const auto next = std::find_if(entry, entries.end(), starts);
            if (next == entries.end()) return;  // after the last step
            EXPECT_EQ(next->action, Action::forward);
            EXPECT_EQ(next->index, std::max<int64_t>(-1, last));
            if (first < -1) return;
            const auto before = std::find_if(std::reverse_iterator(entry), entries.rend(), is_compute);
            ASSERT_NE(before, entries.rend());
            EXPECT_EQ(before->action, Action::forward);
            EXPECT_EQ(before->index, first);
            ++during_forward;
          };
          const int64_t ahead = layout.zero > 0 ? 1 : 0;
          if (entry->action == Action::host_update) {
            ++updates;
            const int64_t layer = std::min(bucket_of(run, entry->index).layer, run.spec.num_layers());
            expect_between(layer - 1 - ahead, layer - ahead);
          }
          if (entry->action == Action::gather_updated) {
            const Bucket& bucket = run.optimizer_state->buckets()[static_cast<size_t>(entry->index)];
            const int64_t layer = std::min(bucket.layer, run.spec.num_layers());
            expect_between(layer - 2, layer - 1);
            const auto arrived = std::find_if(entry, entries.end(), [&](const ActionLog::Entry& e) {
              return e.action == Action::gather_updated && !e.begins && e.index == entry->index;
            });
            const auto use = std::find_if(entry, entries.end(), [&](const ActionLog::Entry& e) {
              return starts(e) && e.index == layer && e.action == Action::forward;
            });
            EXPECT_NE(arrived, entries.end());
            if (layer > -1 && use != entries.end()) {
              EXPECT_LT(std::find_if(entry, entries.end(), starts), arrived);
              EXPECT_LT(arrived, use);
            }
          }
        }
        int64_t matrices = 0;
        for (const TrainedParameter& t : run.optimizer_state->tensors())
          matrices += run.optimizer_state->is_offloaded(t) && t.shard.count() > 0;
        EXPECT_EQ(updates, steps * matrices);
        EXPECT_GT(during_forward, matrices / 2);
      });
    }
  }
}

// A rank that has no sequences in the second step passes through no layer, but its updates are needed by the others.
TEST(ActionLog, HostUpdatesOfARankWithoutSequencesAreThere) {
  for (const int zero : {1, 2, 3}) {
    const Layout layout{.tp = 1, .stages = 1, .dp = 2, .zero = zero, .visible = false};
    comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
      SmallRun::Settings settings = laid_out({.weights = DType::bf16, .threads = 1}, layout);
      settings.step.activation = DType::bf16;
      settings.ranks = world;
      const auto train = [&](bool offload, bool ahead) {
        settings.types.offload = offload;
        SmallRun run(settings);
        const std::vector<data::PackedSequence> all = run.sequences(2);
        const auto begin = [&](int64_t step) {
          const bool none = step == 2 && world.rank() == 1;
          const size_t count = none ? 0 : step == 2 ? 2 : 1;
          const size_t first = step == 2 ? 0 : static_cast<size_t>(world.rank());
          const std::vector<int64_t> samples = SmallRun::samples(static_cast<int64_t>(count));
          run.step->begin(step, 1e-2, std::span(all).subspan(first, count), samples);
        };
        std::vector<double> losses;
        if (ahead) begin(1);
        for (int64_t step = 1; step <= 3; ++step) {
          if (!ahead) begin(step);
          if (ahead && step < 3) begin(step + 1);
          losses.push_back(run.step->finish().loss);
        }
        return LossesAndState(losses, state_of(*run.optimizer_state));
      };
      const LossesAndState expected = train(false, false);
      EXPECT_EQ(train(true, false), expected);
      EXPECT_EQ(train(true, true), expected);
    });
  }
}

// Neither the step nor the one that was enqueued after it updates anything.
TEST(ActionLog, DeferredHostUpdatesOfSkippedStepsChangeNothing) {
  SmallRun::Settings settings{.weights = DType::bf16, .visible = false};
  settings.step.activation = DType::bf16;
  settings.types.offload = true;
  SmallRun run(settings);
  overlapping_steps(run, 2);
  const auto before = state_of(*run.optimizer_state);
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  const std::vector<int64_t> samples = SmallRun::samples(2);
  auto* row = run.optimizer_state->tensors().front().weight.as<uint16_t>() + batch[0].ids[0] * run.spec.hidden;
  const uint16_t was = std::exchange(*row, uint16_t{0x7f80});  // infinity
  run.step->begin(3, 1e-2, batch, samples);
  run.step->begin(4, 1e-2, batch, samples);
  EXPECT_TRUE(run.step->finish().skipped);
  *row = was;
  EXPECT_EQ(state_of(*run.optimizer_state), before);
  SmallRun unbroken(settings);
  overlapping_steps(unbroken, 2);
  for (SmallRun* each : {&run, &unbroken}) EXPECT_FALSE(each->run(3, 1e-2, batch).skipped);
  EXPECT_NE(state_of(*run.optimizer_state), before);
  EXPECT_EQ(state_of(*run.optimizer_state), state_of(*unbroken.optimizer_state));
}

TEST(ActionLog, IsATraceWhoseRowsHaveNoOverlaps) {
  ActionLog log;
  log.compute(Action::backward, 3);
  log.begin(Action::reduce, 4);
  log.compute(Action::backward, 2);
  log.begin(Action::reduce, 3);
  log.end(Action::reduce, 4);
  log.end(Action::reduce, 3);
  log.begin(Action::reduce, 3);
  log.end(Action::reduce, 3);
  log.begin(Action::gather, 1);  // does not end
  log.end_compute();
  std::multiset<std::string> names, unfinished;
  std::map<int, std::vector<std::pair<double, double>>> rows;
  const nlohmann::ordered_json trace = parse_json(chrome_trace(log, 5));
  for (const nlohmann::ordered_json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 5);
    if (event["ph"] == "M") continue;
    if (event["ph"] == "B") {
      EXPECT_FALSE(event.contains("dur"));
      unfinished.insert(event["name"].get<std::string>());
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    names.insert(event["name"].get<std::string>());
    rows[event["tid"]].emplace_back(event["ts"], event["dur"]);
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"backward 2", "backward 3", "reduce 3", "reduce 3", "reduce 4"}));
  EXPECT_EQ(unfinished, std::multiset<std::string>{"gather 1"});
  EXPECT_EQ(rows.size(), 3U);  // computations, and two reductions at a time
  for (const auto& [row, spans] : rows) {
    for (size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].first + spans[i - 1].second, spans[i].first + 2e-3);
  }
}

}  // namespace
}  // namespace ingot::train
