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

std::string LossWatch::check(double loss) {
  if (!std::isfinite(loss)) return "";
  std::string reported;
  if (last_.size() >= min_losses) {
    const double middle = median({last_.begin(), last_.end()});
    std::vector<double> distances;
    for (const double each : last_) distances.push_back(std::abs(each - middle));
    const double deviation = 1.4826 * median(std::move(distances));
    const bool high = loss > middle + std::max(8 * deviation, 0.05 * std::abs(middle));
    if (high && !high_) {
      reported = fmt::format("the loss of {:.4f} is far above the last {} (median {:.4f}, deviation {:.4f})", loss,
                             last_.size(), middle, deviation);
    }
    high_ = high;
  }
  last_.push_back(loss);
  if (last_.size() > window) last_.pop_front();
  return reported;
}

std::string LoaderWatch::check(double waited_s, double step_s) {
  last_.push_back({waited_s, step_s});
  if (last_.size() > window) last_.pop_front();
  if (last_.size() < window) return "";
  double waited = 0, all = 0;
  for (const StepTiming& each : last_) {
    waited += each.waited_s;
    all += each.step_s;
  }
  const double share = all > 0 ? waited / all : 0;
  std::string reported;
  if (share > max_wait_share && !slow_) {
    reported = fmt::format(
        "the last {} steps spent {:.0f} % of their time waiting for data: the loader does not keep up (use a larger "
        "cache, a closer store, or tokenize the data beforehand)",
        window, 100 * share);
    slow_ = true;
  }
  if (share < max_wait_share / 2) slow_ = false;
  return reported;
}

StragglerWatch::StragglerWatch(std::vector<std::string> names) : names_(std::move(names)), slow_(names_.size()) {}

std::string StragglerWatch::check(const std::vector<RankTime>& times) {
  last_.push_back(times);
  if (last_.size() > window) last_.pop_front();
  if (last_.size() < window || names_.size() < 2) return "";
  std::string reported;
  for (size_t rank = 0; rank < names_.size(); ++rank) {
    RankTime rank_time;
    std::vector<double> seconds, tokens;  // of the others
    for (size_t other = 0; other < names_.size(); ++other) {
      RankTime sum;
      for (const std::vector<RankTime>& step : last_) {
        sum.own_s += step[other].own_s;
        sum.data_s += step[other].data_s;
        sum.tokens += step[other].tokens;
      }
      if (other == rank) {
        rank_time = sum;
      } else {
        seconds.push_back(sum.own_s);
        tokens.push_back(static_cast<double>(sum.tokens));
      }
    }
    const double usual = median(std::move(seconds));
    const double share = static_cast<double>(rank_time.tokens) / std::max(1.0, median(std::move(tokens)));
    const double times_usual = usual > 0 ? rank_time.own_s / usual / std::max(1.0, share) : 1;
    if (times_usual > max_slowdown && !slow_[rank]) {
      reported += fmt::format("{}{} took {:.1f} times as long as the other ranks for its part of the last {} steps{}",
                              reported.empty() ? "" : "; ", names_[rank], times_usual, window,
                              rank_time.data_s > rank_time.own_s / 2 ? ", most of it waiting for data" : "");
      slow_[rank] = true;
    }
    if (times_usual < (1 + max_slowdown) / 2) slow_[rank] = false;
  }
  return reported;
}

}  // namespace ingot::train
