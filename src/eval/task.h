// Task files of `ingot eval`: JSON lines, one question each. The fields of a line determine the kind of question
// (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot::eval {

// The model's input: a text, or a conversation for its chat template.
struct Prompt {
  std::string text;      // empty with messages; may also be empty in a ChoiceItem
  std::string messages;  // a JSON array as data/document.h has it, or empty
  std::string tools;     // a JSON array, or empty
};

// A question by log-likelihood: which of several choices is most likely.
struct ChoiceItem {
  int64_t line = 0;
  Prompt prompt;
  std::string delimiter;             // between the prompt and each choice
  std::vector<std::string> choices;  // at least two, none empty
  size_t answer = 0;                 // index of the correct choice
};

// A question with a generated answer, and its checks: at least one of references, regex and json.
struct AnswerItem {
  int64_t line = 0;
  Prompt prompt;
  std::vector<std::string> references;  // the answer must equal one of them
  std::optional<std::string> regex;     // must match somewhere in the answer
  std::optional<std::string> extract;   // if set, its first match in the answer is compared with the references
  bool json = false;                    // the answer must be one JSON value
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
};

struct Task {
  std::filesystem::path path;
  std::string name;  // the file's name without extensions
  std::vector<ChoiceItem> choices;
  std::vector<AnswerItem> answers;
};

// Longer references are refused: the time of ROUGE-L is proportional to the product of both lengths.
constexpr size_t max_reference_bytes = size_t{1} << 16;

// Reads a plain, gzip or Zstandard file. Errors: those of data::LineReader; corrupt, naming file and line, for a line
// that is not a question, for an unknown key, and for a file without questions.
Task read_task(const std::filesystem::path& path);

}  // namespace ingot::eval
