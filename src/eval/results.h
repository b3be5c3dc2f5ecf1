// Scores of one model, or of two models side by side, as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/statistics.h"

namespace ingot::eval {

// The scores of individual items; item i of a metric is the same question for every model.
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

// The row with the mean of the scores. At least one item.
Row row_of(const std::string& task, const Metric& metric);

// Loss of one sub-sequence: sum over its loss tokens, and their number.
struct SequenceLoss {
  double sum = 0;
  int64_t loss_tokens = 0;
};
// Rows `loss` (mean over loss tokens) and `perplexity` (its exponential); the items are the sub-sequences. losses:
// [model][sub-sequence].
std::vector<Row> loss_rows(const std::string& task, const std::vector<std::vector<SequenceLoss>>& losses);

// One column per model, headed by its name, with value and standard error, and the interval below.
std::string table(const std::vector<Row>& rows, const std::vector<std::string>& names);

// A list of {task, metric, items, models: [{name, value, stderr, interval}], difference}.
nlohmann::ordered_json to_json(const std::vector<Row>& rows, const std::vector<std::string>& names);

}  // namespace ingot::eval
