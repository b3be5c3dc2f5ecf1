#include "bench/times.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace ingot::bench {

double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

nlohmann::ordered_json Times::json() {
  std::sort(us.begin(), us.end());
  const auto percentile = [&](double p) {
    if (us.empty()) return 0.0;
    const auto rank = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(us.size())));
    return us[std::clamp<size_t>(rank, 1, us.size()) - 1];
  };
  double sum = 0;
  for (const double one : us) sum += one;
  return {{"count", us.size()},    {"mean", us.empty() ? 0 : sum / static_cast<double>(us.size())},
          {"p50", percentile(50)}, {"p90", percentile(90)},
          {"p99", percentile(99)}, {"p99_9", percentile(99.9)},
          {"max", percentile(100)}};
}

}  // namespace ingot::bench
