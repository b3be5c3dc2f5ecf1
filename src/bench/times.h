// Timings of many repetitions of one operation, and their distribution.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace ingot::bench {

// CPU time of this thread, in microseconds.
double thread_us();

struct Times {
  std::vector<double> us;

  void add(const Times& more) { us.insert(us.end(), more.us.begin(), more.us.end()); }
  // {count, mean, p50, p90, p99, p99_9, max} in microseconds, by nearest rank; sorts.
  nlohmann::ordered_json json();
};

}  // namespace ingot::bench
