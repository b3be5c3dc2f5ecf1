#include "report/key_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot::report {

namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

double first_finite(const Series& series) {
  for (const Point& point : series) {
    if (std::isfinite(point.y)) return point.y;
  }
  return nothing;
}

double last_finite(const Series& series) {
  for (auto point = series.rbegin(); point != series.rend(); ++point) {
    if (std::isfinite(point->y)) return point->y;
  }
  return nothing;
}

double smallest(const Series& series) {
  double smallest_value = nothing;
  for (const Point& point : series) {
    if (std::isfinite(point.y) && !(point.y >= smallest_value)) smallest_value = point.y;
  }
  return smallest_value;
}

double mean(const Series& series) {
  double sum = 0, number = 0;
  for (const Point& point : series) {
    if (!std::isfinite(point.y)) continue;
    sum += point.y;
    ++number;
  }
  return number > 0 ? sum / number : nothing;
}

// Mean of `rates` weighted by the steps' times; both have one point per step.
double mean_over_time(const Series& rates, const Series& times) {
  double sum = 0, time = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    if (!std::isfinite(rates[i].y) || !std::isfinite(times[i].y)) continue;
    sum += rates[i].y * times[i].y;
    time += times[i].y;
  }
  return time > 0 ? sum / time : nothing;
}

}  // namespace

KeyFigures key_figures_of(const RunLog& run) {
  KeyFigures figures;
  figures.first_loss = first_finite(run.loss);
  figures.final_loss = last_finite(run.loss);
  figures.perplexity_before = first_finite(run.eval_perplexity);
  figures.perplexity_after = last_finite(run.eval_perplexity);
  figures.best_perplexity = smallest(run.eval_perplexity);
  figures.eval_loss_before = first_finite(run.eval_loss);
  figures.eval_loss_after = last_finite(run.eval_loss);
  double in_steps = 0;
  for (const Point& point : run.step_s) in_steps += std::isfinite(point.y) ? point.y : 0;
  const bool all_ended = run.num_ends > 0 && run.num_ends == run.num_starts;
  figures.seconds = all_ended ? run.process_seconds : run.step_s.empty() ? nothing : in_steps;
  figures.tokens_per_s = mean_over_time(run.tokens_per_s, run.step_s);
  figures.padding = mean(run.padding);
  figures.mfu = mean_over_time(run.mfu, run.step_s);
  figures.peak_memory = run.peak_memory > 0 ? run.peak_memory : nothing;
  return figures;
}

std::string progress_of(const RunLog& run) {
  std::string text = run.num_planned_steps > 0 ? fmt::format("step {} of {}", run.last_step, run.num_planned_steps)
                                               : fmt::format("step {}", run.last_step);
  return text + ", " + (run.end_reason.empty() ? "running or killed" : run.end_reason);
}

}  // namespace ingot::report
