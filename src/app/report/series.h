// Curves: points over steps, made smooth or thinned out for drawing.
#pragma once

#include <cstddef>
#include <vector>

namespace ingot::app::report {

// A point with a y that is not finite is a gap in the line.
struct Point {
  double x = 0;
  double y = 0;
};
using Series = std::vector<Point>;

// Exponential moving average with a span of `window` points: weights (1 - 2/(window+1))^age, normalised, so that the
// first points are not drawn towards zero. Points that are not finite are left out of the average and of the result.
Series smooth(const Series& series, double window);

// At most about `limit` points: the series is cut into equal runs of points, of which the lowest and the highest stay,
// in their order; so no spike is lost. A run without any finite point stays as one gap. The first and last points
// always stay. A series that is short enough comes back as it is. limit >= 4.
Series thin_out(const Series& series, size_t limit);

}  // namespace ingot::app::report
