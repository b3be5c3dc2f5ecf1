// What a run is warned of while it goes. They remember what they told: a state that lasts is told once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ingot::train {

// A loss far above the last ones: by more than 8 standard deviations, as their median absolute deviation gives them
// (1.4826 of it, for normal numbers), and by more than a twentieth of their median.
class LossWatch {
 public:
  static constexpr size_t window = 64, least = 20;
  // What there is to say of a step's loss; empty when there is nothing. One that is not finite is passed over.
  std::string look(double loss);

 private:
  std::deque<double> last_;
  bool high_ = false;
};

// Steps that wait for data: more than a tenth of the time of the last 16.
class LoaderWatch {
 public:
  static constexpr size_t window = 16;
  static constexpr double most = 0.1;
  // Of several ranks, of which the others wait for the slowest, that one's time.
  std::string look(double waited_s, double step_s);

 private:
  struct Took {
    double waited_s, step_s;
  };
  std::deque<Took> last_;
  bool slow_ = false;
};

// What a rank needed for its part of a step.
struct RankTime {
  double own_s = 0;   // of the step, without what it waited for other ranks
  double data_s = 0;  // of it, waiting for its batch
  int64_t tokens = 0;
};

// A rank that holds the others up: over the last 16 steps it needed 1.3 times as long as the median of the others, and
// more than its larger share of the tokens explains.
class StragglerWatch {
 public:
  static constexpr size_t window = 16;
  static constexpr double most = 1.3;
  // `names`: of the ranks, as a message calls them.
  explicit StragglerWatch(std::vector<std::string> names);
  // `times`: of every rank, in a step.
  std::string look(const std::vector<RankTime>& times);

 private:
  std::vector<std::string> names_;
  std::deque<std::vector<RankTime>> last_;
  std::vector<bool> slow_;  // by rank
};

}  // namespace ingot::train
