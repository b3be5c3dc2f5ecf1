#include "eval/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace ingot::eval {

namespace {

using Json = nlohmann::ordered_json;

double mean_loss(const std::vector<SequenceLoss>& losses, std::span<const uint32_t> pieces) {
  double sum = 0, loss_tokens = 0;
  for (const uint32_t piece : pieces) {
    sum += losses[piece].sum;
    loss_tokens += static_cast<double>(losses[piece].loss_tokens);
  }
  return sum / loss_tokens;
}

std::string number(double value, bool sign) {
  return sign ? fmt::format("{:+.4f}", value) : fmt::format("{:.4f}", value);
}

std::string first_line(const Estimate& estimate, bool sign) {
  return number(estimate.value, sign) +
         (estimate.standard_error ? fmt::format(" \u00b1 {:.4f}", *estimate.standard_error) : "");
}

std::string second_line(const Estimate& estimate, bool sign) {
  if (!estimate.interval) return {};
  return fmt::format("[{}, {}]", number(estimate.interval->low, sign), number(estimate.interval->high, sign));
}

// Pads `text` to a number of terminal columns.
std::string padded(const std::string& text, size_t columns) {
  const size_t have = num_columns(text);
  return text + std::string(columns > have ? columns - have : 0, ' ');
}

std::string without_end_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

Json estimate_json(const Estimate& estimate) {
  Json json = {{"value", estimate.value}, {"stderr", nullptr}, {"interval", nullptr}};
  if (estimate.standard_error) json["stderr"] = *estimate.standard_error;
  if (estimate.interval) json["interval"] = {estimate.interval->low, estimate.interval->high};
  return json;
}

}  // namespace

Row row_of(const std::string& task, const Metric& metric) {
  Row row{task, metric.name, static_cast<int64_t>(metric.scores[0].size()), {}, std::nullopt};
  for (const std::vector<double>& scores : metric.scores) {
    row.models.push_back(metric.share ? share(scores) : mean(scores));
  }
  if (metric.scores.size() == 2) {
    std::vector<double> differences;
    for (size_t i = 0; i < metric.scores[0].size(); ++i) {
      differences.push_back(metric.scores[1][i] - metric.scores[0][i]);
    }
    row.difference = mean(differences);
  }
  return row;
}

std::vector<Row> loss_rows(const std::string& task, const std::vector<std::vector<SequenceLoss>>& losses) {
  const size_t pieces = losses[0].size();
  std::vector<Row> rows;
  for (const bool exponential : {false, true}) {
    const auto statistic = [&](size_t model, std::span<const uint32_t> sample) {
      const double loss = mean_loss(losses[model], sample);
      return exponential ? std::exp(loss) : loss;
    };
    Row row{task, exponential ? "perplexity" : "loss", static_cast<int64_t>(pieces), {}, std::nullopt};
    for (size_t model = 0; model < losses.size(); ++model) {
      row.models.push_back(bootstrap(pieces, [&](auto sample) { return statistic(model, sample); }));
    }
    if (losses.size() == 2) {
      row.difference = bootstrap(pieces, [&](auto sample) { return statistic(1, sample) - statistic(0, sample); });
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string table(const std::vector<Row>& rows, const std::vector<std::string>& names) {
  // Two lines per row: values, and intervals below them.
  std::vector<std::vector<std::string>> lines{{"task", "metric", "items"}};
  for (const std::string& name : names) lines[0].push_back(name);
  if (names.size() == 2) lines[0].push_back(names[1] + " - " + names[0]);
  std::string task;
  for (const Row& row : rows) {
    std::vector<std::string> upper{row.task == task ? "" : row.task, row.metric, fmt::format("{}", row.items)};
    std::vector<std::string> lower{"", "", ""};
    task = row.task;
    for (const Estimate& model : row.models) {
      upper.push_back(first_line(model, false));
      lower.push_back(second_line(model, false));
    }
    if (row.difference) {
      upper.push_back(first_line(*row.difference, true));
      lower.push_back(second_line(*row.difference, true));
    }
    lines.push_back(std::move(upper));
    if (std::any_of(lower.begin(), lower.end(), [](const std::string& cell) { return !cell.empty(); })) {
      lines.push_back(std::move(lower));
    }
  }
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const auto& line : lines) {
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], num_columns(line[c]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (size_t c = 0; c < line.size(); ++c) {
      // Numbers of items are right-aligned.
      if (c == 2) out += std::string(widths[c] - line[c].size(), ' ') + line[c] + "  ";
      if (c != 2) out += padded(line[c], widths[c] + 2);
    }
    text += without_end_spaces(out);
  }
  return text;
}

Json to_json(const std::vector<Row>& rows, const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json models = Json::array();
    for (size_t m = 0; m < row.models.size(); ++m) {
      Json model = {{"name", names[m]}};
      model.update(estimate_json(row.models[m]));
      models.push_back(std::move(model));
    }
    Json json = {{"task", row.task}, {"metric", row.metric}, {"items", row.items}, {"models", std::move(models)}};
    if (row.difference) json["difference"] = estimate_json(*row.difference);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace ingot::eval
