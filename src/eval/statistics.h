// Uncertainty of measured scores.
//
// Intervals are 95 % intervals. The proportion of correct answers has Wilson's score interval (Wilson, "Probable
// inference, the law of succession, and statistical inference", 1927); all other statistics have the percentile
// interval of 2,000 bootstrap resamples of the items (Efron, "Bootstrap methods: another look at the jackknife", 1979).
// Resamples are drawn with one fixed seed, so equal scores give equal intervals, and two models are compared on the
// same resamples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace ingot::eval {

struct Interval {
  double low = 0, high = 0;
};

struct Estimate {
  double value = 0;
  std::optional<double> standard_error;  // absent for fewer than two items
  std::optional<Interval> interval;      // likewise, except Wilson's
};

constexpr int num_resamples = 2000;

// Wilson's interval for `right` of `items` (at least one).
Interval wilson(double right, double items);

// Mean of scores of 0 or 1, with Wilson's interval. The standard error, as for `mean`, is the sample standard deviation
// (with n - 1) divided by sqrt(n). At least one score.
Estimate share(std::span<const double> scores);

// Mean of any scores, with a bootstrap interval.
Estimate mean(std::span<const double> scores);

// Estimate of a statistic of n items. `statistic` receives the item indices of a sample, with repeats. The standard
// error is the standard deviation over the resamples.
Estimate bootstrap(size_t n, const std::function<double(std::span<const uint32_t>)>& statistic);

}  // namespace ingot::eval
