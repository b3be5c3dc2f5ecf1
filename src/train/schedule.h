// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot::train {

enum class ScheduleName { constant, linear, cosine };

// Length of the learning rate's warm-up: a number of steps, or a share of the run.
struct Warmup {
  int64_t steps = 0;
  std::optional<double> percent;  // of the run's steps, in [0, 100); replaces `steps`

  // Number of warm-up steps in a run of `total` steps; a percentage is rounded down to whole steps.
  int64_t in(int64_t total) const;
};

struct Schedule {
  ScheduleName name = ScheduleName::cosine;
  double lr = 0;             // peak
  double min_lr = 0;         // at the last step (linear, cosine)
  int64_t warmup_steps = 0;  // linear from lr / (warmup_steps + 1)
  int64_t steps = 0;         // of the whole run

  // Learning rate of step `step`, 1 .. steps. Warm-up: lr step / (warmup_steps + 1). Then, with t = (step -
  // warmup_steps - 1) / max(1, steps - warmup_steps - 1) from 0 to 1: constant lr; linear lr + (min_lr - lr) t; cosine
  // min_lr + (lr - min_lr)(1 + cos(pi t)) / 2 (Loshchilov and Hutter 2017, arXiv 1608.03983).
  double at(int64_t step) const;
};

}  // namespace ingot::train
