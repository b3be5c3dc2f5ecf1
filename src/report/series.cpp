#include "report/series.h"

#include <algorithm>
#include <cmath>

namespace ingot::report {

Series smooth(const Series& series, double window) {
  const double keep = 1 - 2 / (std::max(window, 1.0) + 1);
  Series result;
  result.reserve(series.size());
  double sum = 0, weight = 0;
  for (const Point& point : series) {
    if (!std::isfinite(point.y)) continue;
    sum = keep * sum + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    result.push_back({point.x, sum / weight});
  }
  return result;
}

Series thin_out(const Series& series, size_t limit) {
  if (series.size() <= limit) return series;
  const size_t num_buckets = (limit - 2) / 2;
  const size_t inner = series.size() - 2;
  Series result = {series.front()};
  for (size_t b = 0; b < num_buckets; ++b) {
    const size_t begin = 1 + b * inner / num_buckets, end = 1 + (b + 1) * inner / num_buckets;
    const Point* low = nullptr;
    const Point* high = nullptr;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(series[i].y)) continue;
      if (low == nullptr || series[i].y < low->y) low = &series[i];
      if (high == nullptr || series[i].y > high->y) high = &series[i];
    }
    if (low == nullptr) {
      if (begin < end) result.push_back(series[begin]);
      continue;
    }
    result.push_back(*std::min(low, high));
    if (low != high) result.push_back(*std::max(low, high));
  }
  result.push_back(series.back());
  return result;
}

}  // namespace ingot::report
