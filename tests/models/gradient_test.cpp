// The gradients of every family compared with finite differences of its own loss.
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

// Moves biases and norm weights away from their initial values, so that a missing factor or term would be noticed.
void perturb_vectors(SmallRun& run) {
  for (const train::TrainedParameter& t : run.optimizer_state->tensors()) {
    if (t.shape.rank() != 1) continue;
    for (int64_t i = 0; i < t.shape.elements(); ++i) {
      t.master.as<float>()[i] += 0.3F * std::sin(static_cast<float>(i * 7 + t.shape.elements()));
    }
  }
  run.optimizer_state->refresh_weights(run.step->context());
}

// For every trained tensor, the change of the loss along its gradient g, by central differences of fourth order, is
// compared with |g|. The step is chosen so that the loss changes by at most 0.2, and the tensor by at most a hundredth
// of its norm.
void compare_with_differences(SmallRun& run) {
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  ASSERT_FALSE(run.run(1, 0, batch).skipped);
  const std::vector<std::vector<float>> gradients = train::gradients_of(*run.optimizer_state);
  const double loss = run.evaluate(batch);
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
      return run.evaluate(batch);
    };
    const double change = (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / 12;
    loss_at(0);
    EXPECT_NEAR(change, norm * step, tolerance(DType::f32, terms) * loss);
  }
}

TEST_P(Gradient, AgreesWithDifferencesForEveryParameter) {
  SmallRun::Settings settings;
  settings.spec = GetParam().spec;
  SmallRun run(settings);
  perturb_vectors(run);
  compare_with_differences(run);
}

TEST_P(Gradient, AgreesWithDifferencesForEveryAdapter) {
  SmallRun::Settings settings;
  settings.spec = GetParam().spec;
  settings.lora = train::small_lora();
  SmallRun run(settings);
  run.randomise_b(3);
  compare_with_differences(run);
}

// The loss is discontinuous where a token's chosen experts change. With all experts chosen it is smooth.
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
