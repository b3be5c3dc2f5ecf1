#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ingot::report {

namespace {

// The smallest of 1, 2, 5 times a power of ten that is at least `size`, up to rounding.
double round_step(double size) {
  const double power = std::pow(10.0, std::floor(std::log10(size)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (size <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

void place_ticks(Axis& axis) {
  const double slack = 1e-9;
  const double first = std::ceil(axis.low / axis.step - slack), last = std::floor(axis.high / axis.step + slack);
  for (double k = first; k <= last; ++k) axis.ticks.push_back(k * axis.step);
}

// Number of decimals that a multiple of `step` needs.
int decimals(double step) { return std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))); }

}  // namespace

Axis rounded_axis(double low, double high, int num_ticks) {
  // A smaller range is rounding noise around one number.
  const double narrow = std::max(std::abs(low), std::abs(high)) * 1e-6;
  if (high - low <= narrow) {
    const double pad = high == 0 && low == 0 ? 1 : std::max(std::abs(low), std::abs(high)) * 0.05;
    low -= low == 0 ? 0 : pad;
    high += pad;
  }
  Axis axis;
  axis.step = round_step((high - low) / num_ticks);
  axis.low = std::floor(low / axis.step + 1e-9) * axis.step;
  axis.high = std::ceil(high / axis.step - 1e-9) * axis.step;
  place_ticks(axis);
  return axis;
}

Axis step_axis(double low, double high, int num_ticks) {
  if (high <= low) high = low + 1;
  Axis axis;
  axis.step = std::max(1.0, round_step((high - low) / num_ticks));
  axis.low = low;
  axis.high = high;
  place_ticks(axis);
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis;
  axis.logarithmic = true;
  const bool only_powers = high / low > 1e3;
  const auto first = static_cast<int>(std::floor(std::log10(low))),
             last = static_cast<int>(std::ceil(std::log10(high)));
  for (int k = first; k <= last; ++k) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor == 1 || !only_powers) axis.ticks.push_back(factor * std::pow(10.0, k));
    }
  }
  while (axis.ticks.size() > 2 && axis.ticks[1] <= low) axis.ticks.erase(axis.ticks.begin());
  while (axis.ticks.size() > 2 && axis.ticks[axis.ticks.size() - 2] >= high) axis.ticks.pop_back();
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
  return axis;
}

std::string tick_label(const Axis& axis, double tick) {
  if (axis.logarithmic) {
    Axis tick_axis;
    tick_axis.step = tick_axis.high = tick;
    return tick_label(tick_axis, tick);
  }
  if (std::abs(tick) < axis.step / 2) return "0";
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (largest < 0.001 || axis.step < 1e-6) {
    const int exponent = static_cast<int>(std::floor(std::log10(std::abs(tick)) + 1e-9));
    return fmt::format("{:g}e{}", std::round(tick / std::pow(10.0, exponent) * 1e3) / 1e3, exponent);
  }
  static constexpr std::pair<double, const char*> scales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  if (largest >= 10000) {
    for (const auto& [scale, suffix] : scales) {
      if (largest >= scale) return fmt::format("{:.{}f}{}", tick / scale, decimals(axis.step / scale), suffix);
    }
  }
  return fmt::format("{:.{}f}", tick, decimals(axis.step));
}

}  // namespace ingot::report
