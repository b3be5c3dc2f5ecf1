#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/strings.h"
#include "report/axis.h"

namespace ingot::report {

namespace {

constexpr double font_size = 12;
constexpr double character_width = 6.6;  // of this font size, rounded up

// More points than this are indistinguishable at the charts' widths.
constexpr size_t max_points = 1500;

struct Range {
  double low = 0, high = 0;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

struct Frame {
  Axis x, y;
  Box box;  // of the plot, without labels
  double px(double value) const { return box.x + x.share(value) * box.width; }
  double py(double value) const { return box.y + (1 - y.share(value)) * box.height; }
};

std::optional<std::pair<Range, Range>> ranges(const Chart& chart) {
  std::optional<std::pair<Range, Range>> found;
  for (const Line& line : chart.lines) {
    for (const Point& point : line.points) {
      if (!std::isfinite(point.y)) continue;
      if (!found) found = {{point.x, point.x}, {point.y, point.y}};
      found->first.add(point.x);
      found->second.add(point.y);
    }
  }
  return found;
}

void draw_axes(std::string& svg, const Chart& chart, const Frame& f) {
  auto out = std::back_inserter(svg);
  const double right = f.box.x + f.box.width, bottom = f.box.y + f.box.height;
  for (const double tick : f.y.ticks) {
    const double y = f.py(tick);
    fmt::format_to(out, R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", f.box.x, y, right,
                   y);
    fmt::format_to(out, R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", f.box.x - 7, y + 4,
                   tick_label(f.y, tick));
  }
  fmt::format_to(out, R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", f.box.x, bottom, right,
                 bottom);
  for (const double tick : f.x.ticks) {
    const double x = f.px(tick);
    fmt::format_to(out, R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", x, bottom, x,
                   bottom + 4);
    fmt::format_to(out, R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x, bottom + 17,
                   tick_label(f.x, tick));
  }
  fmt::format_to(out, R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">step</text>)",
                 f.box.x + f.box.width / 2, bottom + 33);
  fmt::format_to(out, R"(<text class="tick" x="{:.1f}" y="{:.1f}">{}</text>)", f.box.x, f.box.y - 12,
                 escape(chart.y_label));
}

void draw_line(std::string& svg, const Line& line, const Frame& f) {
  auto out = std::back_inserter(svg);
  static constexpr const char* classes[] = {"faint", "solid", "dots"};
  const char* kind = classes[static_cast<size_t>(line.kind)];
  const size_t color = line.color % num_colors;
  const Series points = thin_out(line.points, max_points);
  std::string path, marks;
  const bool marked = line.kind == LineKind::dots && points.size() <= 60;
  const auto mark = [&](const Point& p) {
    fmt::format_to(std::back_inserter(marks), R"(<circle class="mark c{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", color,
                   f.px(p.x), f.py(p.y));
  };
  const auto finite = [&](size_t i) { return i < points.size() && std::isfinite(points[i].y); };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!finite(i)) continue;
    const bool begins = i == 0 || !finite(i - 1);
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", begins ? "M" : "L", f.px(points[i].x),
                   f.py(points[i].y));
    // A point between two gaps has no line through it, so it gets a dot.
    if (marked || (begins && !finite(i + 1))) mark(points[i]);
  }
  if (!path.empty()) fmt::format_to(out, R"(<path class="{} c{}" d="{}"/>)", kind, color, path);
  svg += marks;
}

}  // namespace

std::string draw_chart(const Chart& chart, const Box& box) {
  std::string svg;
  const auto found = ranges(chart);
  if (!found) {
    return fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">nothing to draw yet</text>)",
                       box.x + box.width / 2, box.y + box.height / 2);
  }
  Frame f;
  const auto& [xs, ys] = *found;
  if (chart.logarithmic && ys.low > 0) {
    f.y = log_axis(ys.low, ys.high);
  } else {
    f.y = rounded_axis(chart.from_zero ? std::min(0.0, ys.low) : ys.low, ys.high, box.height < 220 ? 4 : 6);
  }
  size_t widest = 1;
  for (const double tick : f.y.ticks) widest = std::max(widest, tick_label(f.y, tick).size());
  const double left = static_cast<double>(widest) * character_width + 12, top = font_size * 2, bottom = 40, right = 18;
  f.box = {box.x + left, box.y + top, box.width - left - right, box.height - top - bottom};
  f.x = step_axis(xs.low, xs.high, std::max(2, static_cast<int>(f.box.width / 75)));
  draw_axes(svg, chart, f);
  for (const Line& line : chart.lines) draw_line(svg, line, f);
  return svg;
}

std::string draw_legend(const Chart& chart, double x, double y, double width, double& bottom) {
  std::string svg;
  auto out = std::back_inserter(svg);
  double at = x;
  bottom = y;
  for (const Line& line : chart.lines) {
    if (line.label.empty()) continue;
    const double size = 26 + static_cast<double>(num_columns(line.label)) * character_width + 18;
    if (at > x && at + size > x + width) {
      at = x;
      bottom += 18;
    }
    const size_t color = line.color % num_colors;
    const char* kind = line.kind == LineKind::faint ? "faint" : line.kind == LineKind::solid ? "solid" : "dots";
    fmt::format_to(out, R"(<path class="{} c{}" d="M{:.1f} {:.1f}h20"/>)", kind, color, at, bottom - 4);
    if (line.kind == LineKind::dots) {
      fmt::format_to(out, R"(<circle class="mark c{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", color, at + 10, bottom - 4);
    }
    fmt::format_to(out, R"(<text class="tick" x="{:.1f}" y="{:.1f}">{}</text>)", at + 26, bottom, escape(line.label));
    at += size;
  }
  return svg;
}

std::string chart_svg(const Chart& chart, double width, double height) {
  double bottom = 0;
  const std::string legend = draw_legend(chart, 4, 14, width - 8, bottom);
  const double top = legend.empty() ? 0 : bottom + 8;
  return fmt::format(R"(<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", width,
                     height + top, escape(chart.title)) +
         legend + draw_chart(chart, {0, top, width, height}) + "</svg>";
}

std::string chart_style() {
  // Palettes after Okabe and Ito (colour-blind safe), darkened for light backgrounds and lightened for dark ones.
  static constexpr const char* light[num_colors] = {"#0b63a8", "#d1560a", "#05805c", "#b04f8b",
                                                    "#a07800", "#2b8fc4", "#6b5bd0", "#555555"};
  static constexpr const char* dark[num_colors] = {"#5ab0f2", "#ff9a4d", "#3fcf9f", "#e58cc3",
                                                   "#e6c34a", "#8fd3f7", "#a99cf5", "#bbbbbb"};
  std::string css =
      ":root{--paper:#ffffff;--card:#ffffff;--ink:#1c2430;--muted:#5b6675;--rule:#e3e7ec;--axis:#9aa5b1}"
      "@media(prefers-color-scheme:dark){:root{--paper:#0f141a;--card:#161c24;--ink:#e6ebf1;--muted:#9aa7b5;"
      "--rule:#28313c;--axis:#566270}}";
  for (size_t i = 0; i < num_colors; ++i) css += fmt::format(".c{}{{--c:{}}}", i, light[i]);
  css += "@media(prefers-color-scheme:dark){";
  for (size_t i = 0; i < num_colors; ++i) css += fmt::format(".c{}{{--c:{}}}", i, dark[i]);
  css +=
      "}.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--axis);stroke-width:1}"
      ".tick{fill:var(--muted);font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}"
      ".faint,.solid,.dots{fill:none;stroke:var(--c);stroke-linejoin:round;stroke-linecap:round}"
      ".faint{stroke-width:1;opacity:.35}.solid{stroke-width:2}.dots{stroke-width:1.5;stroke-dasharray:5 4;opacity:.8}"
      ".mark{fill:var(--c);stroke:var(--card);stroke-width:1.5}";
  return css;
}

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  const bool clean = is_utf8(text);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if ((byte < 0x20 && c != '\n' && c != '\t' && c != '\r') || byte == 0x7f || (byte >= 0x80 && !clean)) {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

}  // namespace ingot::report
