// Curves: points over steps, smoothed or thinned out for drawing.
#pragma once

#include <cstddef>
#include <vector>

namespace ingot::report {

// A point with a non-finite y is a gap in the line.
struct Point {
  double x = 0;
  double y = 0;
};
using Series = std::vector<Point>;

// Exponential moving average with a span of `window` points: weights (1 - 2/(window+1))^age, normalised, so that the
// first points are not biased towards zero. Non-finite points are left out of the average and of the result.
Series smooth(const Series& series, double window);

// Reduces a series to at most about `limit` points: it is cut into equal runs of points, of which the lowest and the
// highest are kept in order, so no spike is lost. A run without any finite point becomes one gap. The first and last
// points are always kept. A series that is short enough is returned unchanged. limit >= 4.
Series thin_out(const Series& series, size_t limit);

}  // namespace ingot::report
