// Every family's gradients against differences of its own loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/small_run.h"

namespace ingot::models {
namespace {

using train::SmallRun;

class Gradient : public testing::TestWithParam<FamilyCase> {};

// Biases and norms away from where they start, so that nothing that multiplies by them can be missing.
void shake(SmallRun& run) {
  for (const train::TrainedParameter& t : run.optimizer_state->tensors()) {
    if (t.shape.rank() != 1) continue;
    for (int64_t i = 0; i < t.shape.elements(); ++i) {
      t.master.as<float>()[i] += 0.3F * std::sin(static_cast<float>(i * 7 + t.shape.elements()));
    }
  }
  run.optimizer_state->refresh_weights(run.step->context());
}

// For every optimizer_state tensor the change of the loss along its gradient g, by central differences of fourth order,
// against |g|. Steps are such that the loss changes by a fifth, or a weight by a hundredth of what is usual, whichever
// is less.
void compare_with_differences(SmallRun& run) {
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  ASSERT_FALSE(run.run(1, 0, batch).skipped);
  const std::vector<std::vector<float>> gradients = train::gradients_of(*run.optimizer_state);
  const double loss = run.step->evaluate(batch).sum;
  const spec::ModelSpec& m = run.spec;
  const int64_t terms = spec::longest_row(m) * 7 * m.num_layers();
  for (size_t place = 0; place < gradients.size(); ++place) {
    const train::TrainedParameter& t = run.optimizer_state->tensors()[place];
    SCOPED_TRACE(t.name);
    const std::vector<float>& g = gradients[place];
    const std::vector<float> before = train::floats(t.master);
    const auto length = [](const std::vector<float>& x) {
      return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    };
    const double norm = length(g);
    ASSERT_GT(norm, 0);
    const double usual = std::max(length(before), 0.1 * std::sqrt(static_cast<double>(g.size())));
    const double step = std::min(0.2 / norm, 0.01 * usual);
    const auto loss_at = [&](double along) {
      for (size_t i = 0; i < g.size(); ++i) {
        t.master.as<float>()[i] = static_cast<float>(before[i] + along * static_cast<double>(g[i]) / norm);
      }
      run.optimizer_state->refresh_weights(run.step->context());
      return run.step->evaluate(batch).sum;
    };
    const double change = (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / 12;
    loss_at(0);
    EXPECT_NEAR(change, norm * step, tolerance(DType::f32, terms) * loss);
  }
}

TEST_P(Gradient, OfEveryParameter) {
  SmallRun::Settings settings;
  settings.spec = GetParam().spec;
  SmallRun run(settings);
  shake(run);
  compare_with_differences(run);
}

TEST_P(Gradient, OfEveryAdapter) {
  SmallRun::Settings settings;
  settings.spec = GetParam().spec;
  settings.lora = train::small_lora();
  SmallRun run(settings);
  run.randomise_b(3);
  compare_with_differences(run);
}

// A loss jumps where a token changes its experts; where it passes all of them it does not.
std::vector<FamilyCase> smooth_cases() {
  std::vector<FamilyCase> smooth;
  for (const FamilyCase& c : family_cases()) {
    const bool jumps = std::any_of(c.spec.layers.begin(), c.spec.layers.end(), [](const spec::LayerSpec& layer) {
      const spec::Experts* experts = spec::experts_of(layer.mlp);
      return experts != nullptr && experts->count != experts->per_token;
    });
    if (!jumps) smooth.push_back(c);
  }
  return smooth;
}

INSTANTIATE_TEST_SUITE_P(Families, Gradient, testing::ValuesIn(smooth_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
