// A line chart as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "app/report/series.h"

namespace ingot::app::report {

enum class LineKind {
  faint,  // thin and pale: every step as it was
  solid,
  dots,  // a dot at each point, joined by a dashed line
};

struct Line {
  std::string label;  // of the legend; empty: not in it
  Series points;
  size_t color = 0;  // of the palette, taken modulo its size
  LineKind kind = LineKind::solid;
};

struct Chart {
  std::string title;
  std::string y_label;
  bool from_zero = false;    // the y axis starts at 0
  bool logarithmic = false;  // the y axis, if all values are positive
  std::vector<Line> lines;
};

inline constexpr size_t num_colors = 8;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

// Axes, grid and lines inside `box`, labels included, as SVG elements. Without any finite point: a line that says so.
std::string draw_chart(const Chart& chart, const Box& box);

// The marks and names of the lines in a row that begins at (x, y) and wraps at `width`; the baseline of the last row is
// stored in `bottom`.
std::string draw_legend(const Chart& chart, double x, double y, double width, double& bottom);

// A whole <svg> to be put into a page that has chart_style().
std::string chart_svg(const Chart& chart, double width, double height);

// CSS of the elements above: colours for light and dark.
std::string chart_style();

// `text` for element content and quoted attributes of HTML and SVG. Control characters that XML does not allow are
// replaced, and so is what is not UTF-8.
std::string escape(std::string_view text);

}  // namespace ingot::app::report
