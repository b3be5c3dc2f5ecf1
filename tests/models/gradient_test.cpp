// Every family's gradients against differences of its own loss.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/half.h"
#include "tensor/tolerance.h"
#include "tests/models/family_specs.h"
#include "tests/train/small_run.h"

namespace ingot::models {
namespace {

using train::SmallRun;

class Gradient : public testing::TestWithParam<FamilyCase> {};

// Biases and norms away from where they start, so that nothing that multiplies by them can be missing.
void shake(SmallRun& run) {
  for (const train::TrainedTensor& t : run.trained->tensors()) {
    if (t.shape.rank() != 1) continue;
    for (int64_t i = 0; i < t.shape.elements(); ++i) {
      t.master.as<float>()[i] += 0.3F * std::sin(static_cast<float>(i * 7 + t.shape.elements()));
    }
  }
  run.trained->refresh_weights(run.step->context());
}

// For every trained tensor the derivative of the loss along its gradient g, which is |g|^2 / |g|, by central differences of
// fourth order.
void compare_with_differences(SmallRun& run) {
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  ASSERT_FALSE(run.run(1, 0, batch).skipped);
  const std::vector<std::vector<float>> gradients = train::gradients_of(*run.trained);
  double whole = 0;
  for (const std::vector<float>& g : gradients) {
    for (const float value : g) whole += static_cast<double>(value) * static_cast<double>(value);
  }
  whole = std::sqrt(whole);
  for (size_t place = 0; place < gradients.size(); ++place) {
    const train::TrainedTensor& t = run.trained->tensors()[place];
    const std::vector<float>& g = gradients[place];
    double norm = 0;
    double size = 0;
    const std::vector<float> before = train::floats(t.master);
    for (size_t i = 0; i < g.size(); ++i) {
      norm += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      size += static_cast<double>(before[i]) * static_cast<double>(before[i]);
    }
    norm = std::sqrt(norm);
    const double root = std::sqrt(static_cast<double>(g.size()));
    // A step that changes an element by a hundredth of what is usual.
    const double step = 0.01 * std::max(std::sqrt(size), 0.1 * root) / 1.0;
    const auto loss_at = [&](double along) {
      for (size_t i = 0; i < g.size(); ++i) {
        t.master.as<float>()[i] = static_cast<float>(before[i] + along * static_cast<double>(g[i]) / norm);
      }
      run.trained->refresh_weights(run.step->context());
      return run.step->evaluate(batch).sum;
    };
    if (norm == 0) {
      ADD_FAILURE() << t.name << " has a gradient of zero";
      continue;
    }
    const double slope =
        (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
    loss_at(0);
    std::cerr << t.name << " |g| " << norm << " slope " << slope << " err " << slope / norm - 1 << "\n";
  }
}

TEST_P(Gradient, OfEveryParameter) {
  SmallRun::Settings settings;
  settings.spec = GetParam().spec;
  SmallRun run(settings);
  shake(run);
  compare_with_differences(run);
}

INSTANTIATE_TEST_SUITE_P(Families, Gradient, testing::ValuesIn(family_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
