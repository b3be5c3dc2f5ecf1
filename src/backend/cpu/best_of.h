// Measurements that are repeated by turns.
#pragma once

#include <algorithm>
#include <array>

namespace ingot::cpu {

// The highest rate of each of several measurements, which return one each, over `rounds` rounds of all of them in turn:
// what disturbs the machine for a while need not disturb every round of one.
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
