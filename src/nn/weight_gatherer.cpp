#include "nn/weight_gatherer.h"

#include <numeric>

namespace ingot::nn {

std::vector<int> weight_units_of_pass(int64_t blocks, int64_t lowest) {
  std::vector<int> units(static_cast<size_t>(blocks) + 2);
  std::iota(units.begin(), units.end(), 0);
  for (int64_t layer = blocks; layer-- > lowest;) units.push_back(static_cast<int>(1 + layer));
  return units;
}

}  // namespace ingot::nn
