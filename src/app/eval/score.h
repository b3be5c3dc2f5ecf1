// From what a model did with a question to scores by metric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/eval/results.h"
#include "app/eval/task.h"

namespace ingot::app::eval {

struct Score {
  const char* metric;
  bool share;  // 0 or 1, and no other
  double value;
};

// Whether the right choice is the likeliest, by log-likelihood (acc), and by log-likelihood over the choice's
// characters (acc_norm), UTF-8 bytes (acc_bytes) and tokens (acc_tokens); of equal ones the first counts. acc, acc_norm
// and acc_bytes are those of lm-evaluation-harness. tokens[c]: how many tokens choice c has; the delimiter is none of
// its characters or bytes, but is part of its tokens.
std::vector<Score> score_choices(const ChoiceItem& item, const std::vector<double>& logprobs,
                                 const std::vector<int64_t>& tokens);

// exact_match and rougeL with references, regex_match with a regex, json_valid. Errors: as text::Regex.
std::vector<Score> score_answer(const AnswerItem& item, const std::string& answer);

// Scores of one task by metric, in the order in which metrics come up.
class Scores {
 public:
  explicit Scores(size_t models) : models_(models) {}
  void add(size_t model, const Score& score);
  std::vector<Row> rows(const std::string& task) const;

 private:
  size_t models_;
  std::vector<Metric> metrics_;
};

}  // namespace ingot::app::eval
