// How sure a measured number is.
//
// Intervals are of 95 %. A share of right answers has Wilson's score interval (Wilson, "Probable inference, the law of
// succession, and statistical inference", 1927); everything else the percentile interval of 2,000 bootstrap resamples
// of the items (Efron, "Bootstrap methods: another look at the jackknife", 1979). Resamples are drawn with one fixed
// seed, so the same scores give the same interval, and two models are compared on the same resamples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace ingot::app::eval {

struct Interval {
  double low = 0, high = 0;
};

struct Estimate {
  double value = 0;
  std::optional<double> standard_error;  // absent for fewer than two items
  std::optional<Interval> interval;      // likewise, but for Wilson's
};

constexpr int num_resamples = 2000;

// Wilson's interval of `right` of `items` (at least one).
Interval wilson(double right, double items);

// Mean of scores of 0 or 1, with Wilson's interval. Its standard error, as that of `mean`, is the sample's standard
// deviation (with n - 1) over the root of n. At least one score.
Estimate share(std::span<const double> scores);

// Mean of any scores, with a bootstrap interval.
Estimate mean(std::span<const double> scores);

// A statistic of n items: `statistic` gets the items of a sample, with repeats. The standard error is the standard
// deviation of the resamples.
Estimate bootstrap(size_t n, const std::function<double(std::span<const uint32_t>)>& statistic);

}  // namespace ingot::app::eval
