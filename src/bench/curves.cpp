#include "bench/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "bench/random_model.h"
#include "report/run_log.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"
#include "train/recipe.h"

namespace ingot::bench {

bool CurvesReport::agrees() const {
  return std::all_of(rows.begin(), rows.end(), [](const CurveAgreement& row) { return row.agrees; });
}

CurvesReport compare_curves(const std::vector<std::string>& folders) {
  if (folders.size() < 2) throw_error(ErrorKind::usage, "{} run folder given; at least two are needed", folders.size());
  const report::RunLog first = report::read_run(folders[0]);
  std::map<double, double> losses;
  for (const report::Point& point : first.loss) losses[point.x] = point.y;
  const train::Recipe recipe = train::read_recipe(std::filesystem::path(folders[0]) / "recipe.yaml", {});
  CurvesReport report;
  report.steps = std::ssize(first.loss);
  report.precision = train::name(recipe.precision);
  report.allowed = tolerance(train::dtype_of(recipe.precision), spec::chain_length(bench_spec(recipe.model)));
  for (size_t i = 1; i < folders.size(); ++i) {
    const report::RunLog other = report::read_run(folders[i]);
    CurveAgreement row{.run = folders[i], .steps = std::ssize(other.loss), .starts = other.num_starts};
    if (other.loss.size() != losses.size()) row.difference = INFINITY;
    for (const report::Point& point : other.loss) {
      const auto found = losses.find(point.x);
      const double difference =
          found == losses.end() ? INFINITY : std::abs(point.y - found->second) / std::abs(found->second);
      if (difference <= row.difference) continue;  // also false for NaN
      row.difference = difference;
      row.at = point.x;
    }
    row.agrees = row.difference <= report.allowed;
    report.rows.push_back(row);
  }
  return report;
}

}  // namespace ingot::bench
