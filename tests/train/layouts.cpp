#include "tests/train/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "comm/in_process.h"
#include "tensor/tolerance.h"
#include "train/recipe.h"

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
  settings.cp_comm_type = layout.cp_comm_type;
  settings.sequence_parallel = layout.sequence_parallel;
  settings.ep = layout.ep;
  if (layout.shard > 0) settings.shard = layout.shard;
  settings.step.sequences = rank_sequences(sequences, 1, layout.dp - 1, layout.dp).count();
  return settings;
}

void Gathered::add(const TrainedParameter& t, const std::vector<float>& values) {
  add(t, values, {0, std::ssize(values)});
}

void Gathered::add(const TrainedParameter& t, const std::vector<float>& values, const Range& own) {
  const std::lock_guard lock(mutex_);
  std::vector<float>& whole = all[t.number];
  whole.resize(static_cast<size_t>(t.whole.elements()), NAN);
  spec::for_runs(t.slice, t.whole.rank() > 1 ? t.whole[1] : 1, [&](int64_t first, int64_t count, int64_t at) {
    const Range run = spec::common({at, at + count}, own);
    for (int64_t i = run.begin; i < run.end; ++i) {
      float& to = whole[static_cast<size_t>(first + i - at)];
      const float from = values[static_cast<size_t>(i - own.begin)];
      EXPECT_TRUE(std::isnan(to) || to == from) << t.name << " " << first + i - at << ": " << to << " and " << from;
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
      if (step > 1) continue;
      for (const TrainedParameter& t : run.optimizer_state->tensors())
        outcome.gradients.add(t, floats(t.state.front().tensor), t.shard);
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

double largest(const Gathered& tensors) {
  double most = 0;
  for (const auto& [number, values] : tensors.all) most = std::max(most, largest(values));
  return most;
}

std::vector<float> minus(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

// The largest difference of an element of a tensor from `b`; infinite where one is no number, or missing.
double distance(const Gathered& found, size_t number, const std::vector<float>& b) {
  const auto tensor = found.all.find(number);
  if (tensor == found.all.end() || tensor->second.size() != b.size()) return INFINITY;
  const std::vector<float>& a = tensor->second;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double each = std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::isnan(each) ? INFINITY : std::max(most, each);
  }
  return most;
}

void note(Difference& result, double value, double allowed, const std::string& where) {
  const double of_allowed = std::isnan(value) ? INFINITY : value == 0 ? 0 : value / allowed;
  if (of_allowed <= result.of_allowed) return;
  result.of_allowed = of_allowed;
  result.where = where;
}

}  // namespace

Difference difference(const Outcome& one, const Outcome& found, DType type, double rounding) {
  Difference result;
  if (found.losses.size() != one.losses.size() || found.gradients.all.size() != one.gradients.all.size() ||
      found.weights.all.size() != one.weights.all.size()) {
    return {.bits = false, .of_allowed = INFINITY, .where = "numbers of losses, gradients and weights"};
  }
  const auto relative = [](double a, double b) { return std::abs(a / b - 1); };
  for (size_t i = 0; i < one.losses.size(); ++i) {
    const double loss = relative(found.losses[i], one.losses[i]);
    result.loss = std::max(result.loss, loss);
    note(result, loss, rounding, fmt::format("loss of step {}", i + 1));
    note(result, relative(found.norms[i], one.norms[i]), 10 * rounding, fmt::format("gradient norm of step {}", i + 1));
  }
  const double evaluated = relative(found.evaluated, one.evaluated);
  result.loss = std::max(result.loss, evaluated);
  note(result, evaluated, rounding, "evaluation");
  result.bits = found.losses == one.losses && found.norms == one.norms && found.evaluated == one.evaluated &&
                found.gradients.all == one.gradients.all && found.weights.all == one.weights.all;
  // A bias of keys has no gradient: softmax does not change with it. What is computed is the rounding of terms that
  // cancel, and may differ by one unit of the largest gradients; its updates, by one of the largest updates.
  const double epsilon = 2 * unit_roundoff(type);
  const double all_gradients = largest(one.gradients);
  std::set<size_t> without_gradient;
  for (const auto& [number, expected] : one.gradients.all) {
    if (largest(expected) <= epsilon * all_gradients) without_gradient.insert(number);
    const double apart = distance(found.gradients, number, expected);
    result.gradient = std::max(result.gradient, apart / all_gradients);
    note(result, apart, 20 * rounding * largest(expected) + epsilon * all_gradients,
         fmt::format("gradient of tensor {}", number));
  }
  double all_updates = 0;
  for (const auto& [number, expected] : one.weights.all)
    all_updates = std::max(all_updates, largest(minus(expected, one.initial.all.at(number))));
  for (const auto& [number, expected] : one.weights.all) {
    const double apart = distance(found.weights, number, expected);
    result.weight = std::max(result.weight, apart / largest(one.weights));
    // Updates, which are as exact as gradients; and the weights, which are rounded after each.
    const double update = largest(minus(expected, one.initial.all.at(number)));
    const double ulp = type == DType::bf16 ? 0x1p-7 : 0x1p-20;
    const double unit = without_gradient.contains(number) ? epsilon : 0x1p-23;
    const double allowed = 20 * rounding * update + ulp * largest(expected) + unit * all_updates;
    note(result, update > 0 ? apart : INFINITY, allowed, fmt::format("tensor {}", number));
  }
  return result;
}

void compare(const SmallRun::Settings& settings, const std::vector<Layout>& tried, const std::string& name,
             double rounding) {
  Outcome one;
  train(one, settings, {1, 1, 1, 0});
  for (const Layout& layout : tried) {
    Outcome found;
    train(found, settings, layout);
    const Difference result = difference(one, found, settings.weights, rounding);
    EXPECT_LE(result.of_allowed, 1) << fmt::format(
        "{}, tp {}, {} stages, dp {}, cp {}{}, ep {}, zero {}: {}", name, layout.tp, layout.stages, layout.dp,
        layout.cp, layout.cp > 1 ? fmt::format(" by {}", train::name(layout.cp_comm_type)) : "", layout.ep, layout.zero,
        result.where);
  }
}

namespace {

void expect_equal(const Outcome& one, const Outcome& found, const std::string& where) {
  EXPECT_EQ(found.losses, one.losses) << where;
  EXPECT_EQ(found.norms, one.norms) << where;
  EXPECT_EQ(found.evaluated, one.evaluated) << where;
  EXPECT_EQ(found.gradients.all, one.gradients.all) << where;
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

double rounding_of(const spec::ModelSpec& spec, int64_t steps) {
  return tolerance(DType::f32, std::max<int64_t>(spec::longest_row(spec), 24) * 7 * spec.num_layers() * steps);
}

spec::ModelSpec with_blocks(spec::ModelSpec spec, int64_t count) {
  const std::vector<spec::LayerSpec> layers = spec.layers;
  for (size_t i = 0; spec.num_layers() < count; ++i) spec.layers.push_back(layers[i % layers.size()]);
  return spec;
}

}  // namespace ingot::train
