// Who keeps the others waiting: after a time-out a rank asks all others what they do. One that is stopped or cut off
// does not answer; another may not have come to the operation that the rank waits in.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ingot::comm {

class RollCall {
 public:
  // Seconds after which those who have not answered are taken to be stopped.
  static constexpr double patience_s = 3;
  // Seconds longer that a rank which has all answers waits. Where the link of two ranks is cut, one of them then
  // reports first, and it alone knows: the other does not answer.
  static constexpr double lead_s = 1;
  // What a rank does that has not said what.
  static constexpr const char* nothing = "no operation";

  // Of rank `rank`; `hosts`, by rank. `now`: steady_seconds().
  RollCall(int rank, std::vector<std::string> hosts, double now);

  void answer(int rank, std::string activity) { answers_[static_cast<size_t>(rank)] = std::move(activity); }
  // Whether there is nothing more to wait for.
  bool over(double now) const;
  // The ranks that do not answer, else those that do something else than `own`, at most four: "rank 3 on node7 does not
  // answer".
  std::string behind(const std::string& own) const;

 private:
  size_t rank_;
  std::vector<std::string> hosts_;
  double began_;
  std::vector<std::optional<std::string>> answers_;  // by rank
};

}  // namespace ingot::comm
