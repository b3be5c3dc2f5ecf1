// Scores of one model or of two side by side, as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/eval/statistics.h"

namespace ingot::app::eval {

// Every score is of one item; lists of one metric are in the same order for every model.
struct Metric {
  std::string name;
  bool share = false;                       // scores are 0 or 1
  std::vector<std::vector<double>> scores;  // [model][item]
};

// One row of the table.
struct Row {
  std::string task;
  std::string metric;
  int64_t items = 0;
  std::vector<Estimate> models;        // one, or base and tuned
  std::optional<Estimate> difference;  // tuned - base on the same items; with two models
};

// The mean of the scores. At least one item.
Row row_of(const std::string& task, const Metric& metric);

// Sum and number of counted tokens of a piece of text.
struct PieceLoss {
  double sum = 0;
  int64_t counted = 0;
};
// Rows `loss` (mean of counted tokens) and `perplexity` (its exponential); pieces are the items. losses:
// [model][piece].
std::vector<Row> loss_rows(const std::string& task, const std::vector<std::vector<PieceLoss>>& losses);

// Columns of the models are headed by `names`, each with value and standard error, and the interval below.
std::string table(const std::vector<Row>& rows, const std::vector<std::string>& names);

// A list of {task, metric, items, models: [{name, value, stderr, interval}], difference}.
nlohmann::ordered_json to_json(const std::vector<Row>& rows, const std::vector<std::string>& names);

}  // namespace ingot::app::eval
