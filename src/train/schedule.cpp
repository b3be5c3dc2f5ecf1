#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ingot::train {

int64_t Warmup::in(int64_t total) const {
  if (!percent) return steps;
  return std::min(total - 1, static_cast<int64_t>(*percent * static_cast<double>(total) / 100));
}

double Schedule::at(int64_t step) const {
  if (step <= warmup_steps) return lr * static_cast<double>(step) / static_cast<double>(warmup_steps + 1);
  const int64_t span = std::max<int64_t>(1, steps - warmup_steps - 1);
  const double t = std::clamp(static_cast<double>(step - warmup_steps - 1) / static_cast<double>(span), 0.0, 1.0);
  switch (name) {
    case ScheduleName::constant: return lr;
    case ScheduleName::linear: return lr + (min_lr - lr) * t;
    case ScheduleName::cosine: return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * t)) / 2;
  }
  return lr;
}

}  // namespace ingot::train
