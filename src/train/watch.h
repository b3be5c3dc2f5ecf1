// Detectors of conditions that a run warns about. Each reports a lasting condition once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ingot::train {

// Detects a loss far above the recent ones: above their median by more than 8 standard deviations (estimated as 1.4826
// times the median absolute deviation, as for a normal distribution) and by more than 5 % of the median.
class LossWatch {
 public:
  static constexpr size_t window = 64, min_losses = 20;
  // The warning for a step's loss; empty when there is none. Non-finite losses are ignored.
  std::string check(double loss);

 private:
  std::deque<double> last_;
  bool high_ = false;
};

// Detects steps that wait for data for more than a tenth of the time of the last 16 steps.
class LoaderWatch {
 public:
  static constexpr size_t window = 16;
  static constexpr double max_wait_share = 0.1;
  // With several ranks, `waited_s` is that of the slowest, for which the others wait.
  std::string check(double waited_s, double step_s);

 private:
  struct StepTiming {
    double waited_s, step_s;
  };
  std::deque<StepTiming> last_;
  bool slow_ = false;
};

// The time that a rank needed for its part of a step.
struct RankTime {
  double own_s = 0;   // of the step, without waiting for other ranks, except in NCCL's and RCCL's operations
  double data_s = 0;  // part of own_s: waiting for the batch
  int64_t tokens = 0;
};

// Detects a rank that slows the others down: over the last 16 steps it needed more than 1.3 times the median time of
// the other ranks, after correcting for a larger share of the tokens.
class StragglerWatch {
 public:
  static constexpr size_t window = 16;
  static constexpr double max_slowdown = 1.3;
  // `names`: of the ranks, for messages.
  explicit StragglerWatch(std::vector<std::string> names);
  // `times`: of every rank in one step, by rank.
  std::string check(const std::vector<RankTime>& times);

 private:
  std::vector<std::string> names_;
  std::deque<std::vector<RankTime>> last_;
  std::vector<bool> slow_;  // by rank
};

}  // namespace ingot::train
