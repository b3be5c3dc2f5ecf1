#include "base/numpy_sum.h"

#include <array>
#include <numeric>

namespace ingot {

double numpy_sum(std::span<const double> values) {
  constexpr size_t lanes = 8, block = 128;
  if (values.size() < lanes) return std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() > block) {
    const size_t half = values.size() / 2 / lanes * lanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, lanes> sums{};
  size_t done = 0;
  for (; done + lanes <= values.size(); done += lanes) {
    for (size_t lane = 0; lane < lanes; ++lane) sums[lane] += values[done + lane];
  }
  const double total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(done), values.end(), total);
}

}  // namespace ingot
