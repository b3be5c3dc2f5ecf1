#include "data/order.h"

#include <numeric>

#include "base/error.h"

namespace ingot::data {

std::vector<int64_t> SequentialOrder::step_samples(int64_t step) const {
  if (step < 0 || step >= num_sequences_ / global_batch_) {
    throw_error(ErrorKind::usage, "step {} is out of range; the data has {} steps", step,
                num_sequences_ / global_batch_);
  }
  std::vector<int64_t> samples(static_cast<size_t>(global_batch_));
  std::iota(samples.begin(), samples.end(), step * global_batch_);
  return samples;
}

}  // namespace ingot::data
