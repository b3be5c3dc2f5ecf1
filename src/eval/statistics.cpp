#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace ingot::eval {

namespace {

constexpr double normal_quantile = 1.959963984540054;  // of 0.975
constexpr uint64_t resample_seed = 1979;

// The q-quantile of ascending values, with linear interpolation.
double quantile(const std::vector<double>& ascending, double q) {
  const double position = q * static_cast<double>(ascending.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (position - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

// Sample standard deviation, with n - 1; at least two values.
double deviation(std::span<const double> values) {
  const double n = static_cast<double>(values.size());
  const double middle = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / (n - 1));
}

std::optional<double> error_of_mean(std::span<const double> scores) {
  if (scores.size() < 2) return std::nullopt;
  return deviation(scores) / std::sqrt(static_cast<double>(scores.size()));
}

}  // namespace

Interval wilson(double right, double items) {
  const double p = right / items, z2 = normal_quantile * normal_quantile;
  const double middle = (p + z2 / (2 * items)) / (1 + z2 / items);
  const double half = normal_quantile / (1 + z2 / items) * std::sqrt(p * (1 - p) / items + z2 / (4 * items * items));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

Estimate share(std::span<const double> scores) {
  const double n = static_cast<double>(scores.size());
  const double right = std::accumulate(scores.begin(), scores.end(), 0.0);
  return {right / n, error_of_mean(scores), wilson(right, n)};
}

Estimate mean(std::span<const double> scores) {
  Estimate estimate = bootstrap(scores.size(), [&](std::span<const uint32_t> sample) {
    double sum = 0;
    for (const uint32_t item : sample) sum += scores[item];
    return sum / static_cast<double>(sample.size());
  });
  estimate.standard_error = error_of_mean(scores);
  return estimate;
}

Estimate bootstrap(size_t n, const std::function<double(std::span<const uint32_t>)>& statistic) {
  std::vector<uint32_t> sample(n);
  std::iota(sample.begin(), sample.end(), 0U);
  Estimate estimate;
  estimate.value = statistic(sample);
  if (n < 2) return estimate;
  std::vector<double> values;
  for (int r = 0; r < num_resamples; ++r) {
    RandomStream stream(resample_seed, r);
    for (uint32_t& item : sample) item = static_cast<uint32_t>(stream.below(n));
    values.push_back(statistic(sample));
  }
  estimate.standard_error = deviation(values);
  std::sort(values.begin(), values.end());
  estimate.interval = Interval{quantile(values, 0.025), quantile(values, 0.975)};
  return estimate;
}

}  // namespace ingot::eval
