#include "train/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ingot::train {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string LossWatch::look(double loss) {
  if (!std::isfinite(loss)) return "";
  std::string told;
  if (last_.size() >= least) {
    const double middle = median({last_.begin(), last_.end()});
    std::vector<double> distances;
    for (const double each : last_) distances.push_back(std::abs(each - middle));
    const double deviation = 1.4826 * median(std::move(distances));
    const bool high = loss > middle + std::max(8 * deviation, 0.05 * std::abs(middle));
    if (high && !high_) {
      told = fmt::format("the loss of {:.4f} is far above the last {} (median {:.4f}, deviation {:.4f})", loss,
                         last_.size(), middle, deviation);
    }
    high_ = high;
  }
  last_.push_back(loss);
  if (last_.size() > window) last_.pop_front();
  return told;
}

std::string LoaderWatch::look(double waited_s, double step_s) {
  last_.push_back({waited_s, step_s});
  if (last_.size() > window) last_.pop_front();
  if (last_.size() < window) return "";
  double waited = 0, all = 0;
  for (const Took& each : last_) {
    waited += each.waited_s;
    all += each.step_s;
  }
  const double share = all > 0 ? waited / all : 0;
  std::string told;
  if (share > most && !slow_) {
    told = fmt::format(
        "the last {} steps have waited for data for {:.0f} % of their time: the loader does not keep up (more of a "
        "cache, a nearer store, or data that is tokenized beforehand)",
        window, 100 * share);
    slow_ = true;
  }
  if (share < most / 2) slow_ = false;
  return told;
}

}  // namespace ingot::train
