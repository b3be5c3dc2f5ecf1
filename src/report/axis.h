// A chart axis: its range, and ticks at round numbers.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace ingot::report {

struct Axis {
  double low = 0;
  double high = 1;
  double step = 1;  // between ticks: 1, 2 or 5 times a power of ten
  bool logarithmic = false;
  std::vector<double> ticks;

  // Position of `value` between low (0) and high (1).
  double share(double value) const {
    return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

// An axis that covers [low, high], widened to the next ticks; about `num_ticks` of them. An empty range is widened too.
// Values are finite, low <= high.
Axis rounded_axis(double low, double high, int num_ticks);

// An axis that covers exactly [low, high], with ticks at whole numbers. For steps.
Axis step_axis(double low, double high, int num_ticks);

// A logarithmic axis, widened to the ticks around [low, high]: 1, 2 and 5 times powers of ten, or only powers of ten
// when the range is large. 0 < low <= high.
Axis log_axis(double low, double high);

// The label of a tick: as many decimals as the step needs; "20k", "1.5M" for axes of large numbers, "2e-4" for small
// ones.
std::string tick_label(const Axis& axis, double tick);

}  // namespace ingot::report
