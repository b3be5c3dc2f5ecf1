// A line chart as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/series.h"

namespace ingot::report {

enum class LineKind {
  faint,  // thin and pale, for unsmoothed values
  solid,
  dots,  // a dot at each point, joined by a dashed line
};

struct Line {
  std::string label;  // text in the legend; empty: not in the legend
  Series points;
  size_t color = 0;  // palette index, modulo the palette's size
  LineKind kind = LineKind::solid;
};

struct Chart {
  std::string title;
  std::string y_label;
  bool from_zero = false;    // the y axis begins at 0
  bool logarithmic = false;  // logarithmic y axis, if all values are positive
  std::vector<Line> lines;
};

inline constexpr size_t num_colors = 8;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

// Axes, grid and lines inside `box`, labels included, as SVG elements. Without any finite point: a text that says so.
std::string draw_chart(const Chart& chart, const Box& box);

// The marks and names of the lines, in rows that begin at (x, y) and wrap at `width`; `bottom` receives the baseline of
// the last row.
std::string draw_legend(const Chart& chart, double x, double y, double width, double& bottom);

// A complete <svg> for a page that contains chart_style().
std::string chart_svg(const Chart& chart, double width, double height);

// CSS of the elements above: colours for light and dark.
std::string chart_style();

// Escapes `text` for element content and quoted attributes of HTML and SVG. Control characters that XML does not allow
// and invalid UTF-8 are replaced.
std::string escape(std::string_view text);

}  // namespace ingot::report
