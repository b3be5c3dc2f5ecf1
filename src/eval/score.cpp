#include "eval/score.h"

#include <algorithm>

#include "eval/text_metrics.h"
#include "text/unicode.h"

namespace ingot::eval {

std::vector<Score> choice_logprobs(const ChoiceItem& item, const std::vector<double>& logprobs,
                                   const std::vector<int64_t>& tokens) {
  const auto accuracy = [&](const char* metric, auto length) {
    size_t best = 0;
    const auto value = [&](size_t c) { return logprobs[c] / static_cast<double>(length(c)); };
    for (size_t c = 1; c < logprobs.size(); ++c) {
      if (value(c) > value(best)) best = c;
    }
    return Score{metric, true, best == item.answer ? 1.0 : 0.0};
  };
  return {accuracy("acc", [](size_t) { return 1; }),
          accuracy("acc_norm", [&](size_t c) { return text::split_characters(item.choices[c]).size(); }),
          accuracy("acc_bytes", [&](size_t c) { return item.choices[c].size(); }),
          accuracy("acc_tokens", [&](size_t c) { return tokens[c]; })};
}

std::vector<Score> score_answer(const AnswerItem& item, const std::string& answer) {
  std::vector<Score> scores;
  const auto add_share = [&](const char* metric, bool right) { scores.push_back({metric, true, right ? 1.0 : 0.0}); };
  if (!item.references.empty()) {
    const std::string compared = item.extract ? extracted(answer, *item.extract) : answer;
    add_share("exact_match", exact_match(compared, item.references));
    scores.push_back({"rougeL", false, rouge_l(answer, item.references)});
  }
  if (item.regex) add_share("regex_match", regex_match(answer, *item.regex));
  if (item.json) add_share("json_valid", is_json(answer));
  return scores;
}

void Scores::add(size_t model, const Score& score) {
  auto found =
      std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& metric) { return metric.name == score.metric; });
  if (found == metrics_.end()) {
    metrics_.push_back({score.metric, score.share, std::vector<std::vector<double>>(models_)});
    found = metrics_.end() - 1;
  }
  found->scores[model].push_back(score.value);
}

std::vector<Row> Scores::rows(const std::string& task) const {
  std::vector<Row> rows;
  for (const Metric& metric : metrics_) rows.push_back(row_of(task, metric));
  return rows;
}

}  // namespace ingot::eval
