#include "spec/rounding.h"

#include <algorithm>

namespace ingot::spec {

int64_t chain_length(const ModelSpec& model) {
  const int64_t longest = std::max(longest_row(model), model.vocab);
  return longest * 7 * model.num_layers();  // seven gemms per block, forward or backward
}

}  // namespace ingot::spec
