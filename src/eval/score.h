// Turns a model's results for a question into scores by metric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/results.h"
#include "eval/task.h"

namespace ingot::eval {

struct Score {
  const char* metric;
  bool share;  // the score is 0 or 1
  double value;
};

// Whether the correct choice has the highest log-likelihood (acc), and the highest log-likelihood divided by the
// choice's characters (acc_norm), UTF-8 bytes (acc_bytes) and tokens (acc_tokens); the first of equal ones wins. acc,
// acc_norm and acc_bytes equal those of lm-evaluation-harness. tokens[c]: number of tokens of choice c; the delimiter
// does not count as characters or bytes, but its tokens do count.
std::vector<Score> choice_logprobs(const ChoiceItem& item, const std::vector<double>& logprobs,
                                   const std::vector<int64_t>& tokens);

// exact_match and rougeL with references, regex_match with a regex, json_valid. Errors: as text::Regex.
std::vector<Score> score_answer(const AnswerItem& item, const std::string& answer);

// Scores of one task by metric, in order of first appearance.
class Scores {
 public:
  explicit Scores(size_t models) : models_(models) {}
  void add(size_t model, const Score& score);
  std::vector<Row> rows(const std::string& task) const;

 private:
  size_t models_;
  std::vector<Metric> metrics_;
};

}  // namespace ingot::eval
