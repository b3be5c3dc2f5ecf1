#include "eval/text_metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/strings.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace ingot::eval {

namespace {

std::vector<std::string> words(std::string_view text) {
  const std::string lower = text::lower_case(text);
  std::vector<std::string> words;
  std::string word;
  for (const char c : lower) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

size_t common_subsequence(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  // Maps words to numbers, so that the inner loop compares no strings.
  std::unordered_map<std::string_view, int> number;
  const auto numbers = [&](const std::vector<std::string>& list) {
    std::vector<int> ids;
    for (const std::string& word : list)
      ids.push_back(number.emplace(word, static_cast<int>(number.size())).first->second);
    return ids;
  };
  const std::vector<int> left = numbers(a), right = numbers(b);
  std::vector<size_t> row(right.size() + 1, 0);
  for (const int word : left) {
    size_t diagonal = 0;
    for (size_t j = 0; j < right.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = word == right[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

bool exact_match(std::string_view answer, std::span<const std::string> references) {
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) { return trim(answer) == trim(reference); });
}

std::string extracted(std::string_view answer, std::string_view pattern) {
  const auto matches = text::Regex(pattern).find_all(answer);
  if (matches.empty()) return {};
  return std::string(answer.substr(matches[0].first, matches[0].second - matches[0].first));
}

bool regex_match(std::string_view answer, std::string_view pattern) {
  return !text::Regex(pattern).find_all(answer).empty();
}

bool is_json(std::string_view answer) { return nlohmann::json::accept(trim(answer)); }

double rouge_l(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> given = words(answer), wanted = words(reference);
  const size_t common = common_subsequence(given, wanted);
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(given.size());
  const double recall = static_cast<double>(common) / static_cast<double>(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

double rouge_l(std::string_view answer, std::span<const std::string> references) {
  double best = 0;
  for (const std::string& reference : references) best = std::max(best, rouge_l(answer, reference));
  return best;
}

}  // namespace ingot::eval
