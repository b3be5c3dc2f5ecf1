// What a run is warned of while it goes. Both remember what they told: a state that lasts is told once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

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
  std::string look(double waited_s, double step_s);

 private:
  struct Took {
    double waited_s, step_s;
  };
  std::deque<Took> last_;
  bool slow_ = false;
};

}  // namespace ingot::train
