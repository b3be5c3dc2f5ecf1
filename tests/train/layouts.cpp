#include "tests/train/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "comm/in_process.h"
#include "tensor/tolerance.h"

namespace ingot::train {

SmallRun::Settings laid_out(SmallRun::Settings settings, const Layout& layout) {
  settings.tp = layout.tp;
  settings.stages = layout.stages;
  settings.zero = layout.zero;
  settings.step.schedule = layout.schedule;
  settings.chunks = layout.chunks;
  settings.visible = layout.visible;
  settings.step.recompute = layout.recompute;
  settings.cp = layout.cp;
  settings.sequence_parallel = layout.sequence_parallel;
  settings.ep = layout.ep;
  if (layout.shard > 0) settings.shard = layout.shard;
  settings.step.sequences = rank_sequences(sequences, 1, layout.dp - 1, layout.dp).count();
  return settings;
}

void Gathered::add(const TrainedParameter& t, const std::vector<float>& values) {
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

StepResult run_step(SmallRun& run, int64_t step) {
  const std::vector<data::PackedSequence> all = run.sequences(sequences);
  const comm::Grid& grid = run.step->grid();
  const std::vector<int64_t> samples = SmallRun::samples(sequences);
  const auto [begin, end] = rank_sequences(sequences, 1, grid.data_rank(), grid.data_ranks());
  // Updates by SGD are proportional to gradients, which are compared by them.
  const bool sgd = run.optimizer_state->tensors().front().optimizer->name == std::string_view("sgd");
  return run.step->run(step, sgd ? 0.1 : 1e-2,
                       std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                       std::span(samples).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

void train(Outcome& outcome, const SmallRun::Settings& settings, const Layout& layout, int64_t steps) {
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
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    if (world.rank() == 0) outcome.evaluated = sum / layout.dp;  // each data-parallel rank had all of them
    EXPECT_EQ(std::ranges::count_if(losses, [](double loss) { return loss > 0; }), layout.dp);
    for (const TrainedParameter& t : run.optimizer_state->tensors()) outcome.weights.add(t, run.weight(t));
  });
}

namespace {

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

std::vector<float> difference(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

}  // namespace

void compare(const SmallRun::Settings& settings, const std::vector<Layout>& tried, const std::string& name,
             double rounding) {
  Outcome one;
  train(one, settings, {1, 1, 1, 0});
  for (const Layout& layout : tried) {
    const std::string where = fmt::format("{}, tp {}, {} stages, dp {}, cp {}, ep {}, zero {}", name, layout.tp,
                                          layout.stages, layout.dp, layout.cp, layout.ep, layout.zero);
    Outcome found;
    train(found, settings, layout);
    ASSERT_EQ(found.losses.size(), one.losses.size()) << where;
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i] / one.losses[i], 1, rounding) << where << " " << i;
      EXPECT_NEAR(found.norms[i] / one.norms[i], 1, 10 * rounding) << where << " " << i;
    }
    EXPECT_NEAR(found.evaluated / one.evaluated, 1, rounding) << where;
    ASSERT_EQ(found.weights.all.size(), one.weights.all.size()) << where;
    // A bias of keys has no gradient: softmax does not change with it. What is computed is the rounding of terms that
    // cancel, and may differ by one unit of the largest gradients.
    double noise = 0;
    for (const auto& [number, expected] : one.weights.all)
      noise = std::max(noise, 0x1p-23 * largest(difference(expected, one.initial.all.at(number))));
    for (const auto& [number, expected] : one.weights.all) {
      const std::vector<float>& weight = found.weights.all.at(number);
      ASSERT_EQ(weight.size(), expected.size()) << where << ", tensor " << number;
      const double ulp = settings.weights == DType::bf16 ? 0x1p-7 : 0x1p-20;
      // Updates, which are as exact as gradients; and the weights, which are rounded after each.
      const std::vector<float> update = difference(expected, one.initial.all.at(number));
      EXPECT_GT(largest(update), 0) << where << ", tensor " << number;
      const double bound = 20 * rounding * largest(update) + ulp * largest(expected) + noise;
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(weight[i], expected[i], bound) << where << ", tensor " << number << ", element " << i;
    }
  }
}

namespace {

void expect_equal(const Outcome& one, const Outcome& found, const std::string& where) {
  EXPECT_EQ(found.losses, one.losses) << where;
  EXPECT_EQ(found.norms, one.norms) << where;
  EXPECT_EQ(found.evaluated, one.evaluated) << where;
  ASSERT_EQ(found.weights.all.size(), one.weights.all.size()) << where;
  for (const auto& [number, expected] : one.weights.all)
    EXPECT_EQ(found.weights.all.at(number), expected) << where << ", tensor " << number;
}

}  // namespace

void compare_bits(SmallRun::Settings settings, const std::vector<Layout>& tried, const std::string& name,
                  int64_t steps) {
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = sequences;
  Outcome one;
  train(one, settings, {1, 1, 1, 0}, steps);
  for (const Layout& layout : tried) {
    Outcome found;
    settings.step.micro = layout.dp == 1 ? 3 : 1;
    train(found, settings, layout, steps);
    expect_equal(one, found,
                 fmt::format("{}, {} slices, tp {}, {} stages, dp {}, cp {}, ep {}, zero {}", name, settings.slices,
                             layout.tp, layout.stages, layout.dp, layout.cp, layout.ep, layout.zero));
  }
}

std::vector<models::FamilyCase> cut_families() {
  std::vector<models::FamilyCase> list = models::family_cases();
  std::erase_if(list, [](const models::FamilyCase& c) { return !models::can_be_cut(c.spec, {.tp = 2, .pp = 2}); });
  return list;
}

int max_slices(const spec::ModelSpec& spec) {
  const auto can = [&](int64_t slices) {
    try {
      spec::check_sum_slices(spec, slices);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  return can(4) ? 4 : can(2) ? 2 : 1;
}

std::vector<models::FamilyCase> sliced_families() {
  std::vector<models::FamilyCase> list = models::family_cases();
  std::erase_if(list, [](const models::FamilyCase& c) { return max_slices(c.spec) == 1; });
  return list;
}

double rounding_of(const spec::ModelSpec& spec) {
  return tolerance(DType::f32, std::max<int64_t>(spec::longest_row(spec), 24) * 7 * spec.num_layers() * 3);
}

}  // namespace ingot::train
