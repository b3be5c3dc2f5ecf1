#include "report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "report/charts.h"
#include "report/key_figures.h"

namespace ingot::report {

namespace {

constexpr double width = 960, height = 390, margin = 22;

std::string heading(double x, double y, std::string_view css, std::string_view text) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)", css, x, y, escape(text));
}

std::string short_number(double value) { return fmt::format("{:.{}f}", value, std::abs(value) < 1000 ? 2 : 0); }

std::string subtitle(const RunLog& run) {
  const KeyFigures figures = key_figures_of(run);
  std::string text = fmt::format("{} parameters", format_count(static_cast<double>(run.parameters)));
  if (run.trainable != run.parameters) {
    text += fmt::format(" ({} trained)", format_count(static_cast<double>(run.trainable)));
  }
  text += fmt::format(", {} tokens", format_count(static_cast<double>(run.num_tokens)));
  if (std::isfinite(figures.seconds)) text += fmt::format(" in {}", format_duration(figures.seconds));
  if (std::isfinite(figures.tokens_per_s)) text += fmt::format(", {:.0f} tokens/s", figures.tokens_per_s);
  if (!run.device.empty()) text += fmt::format(", {}", run.device);
  return text;
}

}  // namespace

std::string picture(std::span<const RunLog> runs) {
  Chart loss = loss_chart(runs);
  const Chart perplexity = perplexity_chart(runs);
  const bool evaluated = std::any_of(runs.begin(), runs.end(), [](const RunLog& r) {
    return std::any_of(r.eval_perplexity.begin(), r.eval_perplexity.end(),
                       [](const Point& p) { return std::isfinite(p.y); });
  });
  std::string title = labels_of(runs)[0];
  if (runs.size() > 1) title = fmt::format("{} runs", runs.size());
  double bottom = 0;
  std::string body = heading(margin, 34, "title", title);
  if (runs.size() == 1) body += heading(margin, 56, "tick", subtitle(runs[0]));
  body += draw_legend(loss, margin, runs.size() == 1 ? 82 : 58, width - 2 * margin, bottom);
  const double top = bottom + 30;
  const double loss_width = evaluated ? 520 : width - 2 * margin;
  body += heading(margin, top, "head", "Loss");
  body += draw_chart(loss, {margin, top + 6, loss_width, height - 110});
  if (evaluated) {
    const double x = margin + loss_width + 20;
    std::string text = "Held-out perplexity";
    if (runs.size() == 1) {
      const KeyFigures figures = key_figures_of(runs[0]);
      text += fmt::format(": {} before, {} after", short_number(figures.perplexity_before),
                          short_number(figures.perplexity_after));
    }
    body += heading(x, top, "head", text);
    body += draw_chart(perplexity, {x, top + 6, width - margin - x, height - 110});
  }
  const double total = top + 6 + height - 110 + 14;
  const std::string font = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif";
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}">)",
      width, total);
  svg += fmt::format("<title>{}</title><style>{}", escape("Training curves: " + title), chart_style());
  svg += fmt::format(".title{{fill:var(--ink);font:600 19px {0}}}.head{{fill:var(--ink);font:600 14px {0}}}", font);
  svg += fmt::format(
      ".sheet{{fill:var(--card);stroke:var(--rule)}}</style>"
      "<rect class=\"sheet\" x=\"0.5\" y=\"0.5\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"10\"/>",
      width - 1, total - 1);
  return svg + body + "</svg>\n";
}

}  // namespace ingot::report
