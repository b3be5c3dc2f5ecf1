#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot::report {

namespace {

bool has_numbers(const Chart& chart) {
  return std::any_of(chart.lines.begin(), chart.lines.end(), [](const Line& line) {
    return std::any_of(line.points.begin(), line.points.end(), [](const Point& p) { return std::isfinite(p.y); });
  });
}

// One line per run, of `field` times `factor`.
Chart plain_chart(std::span<const RunLog> runs, const char* title, const char* y_label, bool from_zero,
                  Series RunLog::* field, double factor = 1) {
  Chart chart{title, y_label, from_zero, false, {}};
  for (size_t r = 0; r < runs.size(); ++r) {
    Line line{"", runs[r].*field, r, LineKind::solid};
    for (Point& point : line.points) point.y *= factor;
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

std::vector<std::string> labels_of(std::span<const RunLog> runs) {
  std::vector<std::string> labels;
  for (const RunLog& run : runs) {
    const auto same = std::count_if(runs.begin(), runs.end(), [&](const RunLog& r) { return r.name == run.name; });
    labels.push_back(same > 1 ? run.folder.string() : run.name);
  }
  return labels;
}

Chart loss_chart(std::span<const RunLog> runs) {
  Chart chart{"Loss", "nats per token", false, false, {}};
  const std::vector<std::string> labels = labels_of(runs);
  for (size_t r = 0; r < runs.size(); ++r) {
    const bool one = runs.size() == 1;
    const std::string prefix = one ? std::string() : labels[r] + ", ";
    // With several runs their pale lines would hide each other.
    if (runs.size() <= 2) chart.lines.push_back({one ? "each step" : "", runs[r].loss, r, LineKind::faint});
    const double window = std::clamp(static_cast<double>(runs[r].loss.size()) / 20, 4.0, 500.0);
    chart.lines.push_back({prefix + "training, smoothed", smooth(runs[r].loss, window), r, LineKind::solid});
    if (!runs[r].eval_loss.empty()) {
      // A single run can use a second colour.
      const size_t color = one ? 1 : r;
      chart.lines.push_back({prefix + "held-out", runs[r].eval_loss, color, LineKind::dots});
    }
  }
  return chart;
}

Chart perplexity_chart(std::span<const RunLog> runs) {
  Chart chart{"Held-out perplexity", "perplexity", false, false, {}};
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    chart.lines.push_back({"", runs[r].eval_perplexity, runs.size() > 1 ? r : 1, LineKind::dots});
    for (const Point& point : runs[r].eval_perplexity) {
      if (!std::isfinite(point.y)) continue;
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  if (high > 10 * low) {  // training from random weights: thousands at first, then tens
    chart.logarithmic = true;
    chart.y_label = "perplexity, logarithmic";
  }
  return chart;
}

std::vector<Chart> other_charts(std::span<const RunLog> runs) {
  double max_memory = 0;
  for (const RunLog& run : runs) max_memory = std::max(max_memory, run.peak_memory);
  const bool gigabytes = max_memory >= 1024.0 * 1024 * 1024;
  const double memory_unit = gigabytes ? 1.0 / (1024.0 * 1024 * 1024) : 1.0 / (1024.0 * 1024);
  std::vector<Chart> charts;
  charts.push_back(perplexity_chart(runs));
  charts.push_back(plain_chart(runs, "Learning rate", "learning rate", true, &RunLog::lr));
  charts.push_back(plain_chart(runs, "Gradient norm", "norm before clipping", true, &RunLog::grad_norm));
  charts.push_back(plain_chart(runs, "Speed", "tokens/s", true, &RunLog::tokens_per_s));
  charts.push_back(plain_chart(runs, "Memory", gigabytes ? "GiB" : "MiB", true, &RunLog::memory, memory_unit));
  charts.push_back(plain_chart(runs, "Model FLOP utilisation", "% of the peak", true, &RunLog::mfu, 100));
  charts.push_back(plain_chart(runs, "Waiting for data", "% of the step", true, &RunLog::data_share, 100));
  std::erase_if(charts, [](const Chart& chart) { return !has_numbers(chart); });
  return charts;
}

}  // namespace ingot::report
