// Metrics of a generated text. Scores are 0 or 1, except ROUGE-L.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ingot::eval {

// Whether `answer` equals one of the references, ignoring white space (spaces, tabs, line ends) at both ends.
bool exact_match(std::string_view answer, std::span<const std::string> references);

// The first match of `pattern`, or empty: the part of the answer that is compared. Errors: as text::Regex.
std::string extracted(std::string_view answer, std::string_view pattern);

// Whether `pattern` matches somewhere. Errors: as text::Regex.
bool regex_match(std::string_view answer, std::string_view pattern);

// Whether the answer, without white space at both ends, is one JSON value (RFC 8259).
bool is_json(std::string_view answer);

// ROUGE-L, the F-measure of the longest common subsequence of words: Lin, "ROUGE: a package for automatic evaluation of
// summaries", 2004, with beta = 1. Words are runs of a-z and 0-9 of the lower-cased text (as in the rouge-score package
// without its stemmer). In [0, 1]; 0 when either has no words.
double rouge_l(std::string_view answer, std::string_view reference);
// The maximum over several references.
double rouge_l(std::string_view answer, std::span<const std::string> references);

}  // namespace ingot::eval
