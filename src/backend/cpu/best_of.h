// Repeated measurements that take turns.
#pragma once

#include <algorithm>
#include <array>

namespace ingot::cpu {

// The highest rate of each measurement over `rounds` rounds, where a round calls each measurement once. Taking turns, a
// temporary disturbance of the machine is unlikely to affect every round of one measurement.
template <class... Measure>
std::array<double, sizeof...(Measure)> best_of(int rounds, Measure... measure) {
  std::array<double, sizeof...(Measure)> best{};
  for (int round = 0; round < rounds; ++round) {
    auto each = best.begin();
    ((*each = std::max(*each, measure()), ++each), ...);
  }
  return best;
}

}  // namespace ingot::cpu
