// Task files of `ingot eval`: JSON lines, each a question to a model. What a line asks is told by its fields
// (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot::app::eval {

// What the model is given: a text, or a conversation for its chat template.
struct Prompt {
  std::string text;      // empty with messages; for choices it may be empty without, too
  std::string messages;  // a JSON array as data/document.h has it, or empty
  std::string tools;     // a JSON array, or empty
};

// Which of several answers the model finds most likely.
struct ChoiceItem {
  int64_t line = 0;
  Prompt prompt;
  std::string delimiter;             // between the prompt and each choice
  std::vector<std::string> choices;  // at least two, none empty
  size_t answer = 0;                 // index of the right one
};

// What the model answers, and what is checked of it; at least one of references, regex and json.
struct AnswerItem {
  int64_t line = 0;
  Prompt prompt;
  std::vector<std::string> references;  // any of them is right
  std::optional<std::string> regex;     // must match somewhere in the answer
  std::optional<std::string> extract;   // the first match of it is what is compared with the references
  bool json = false;                    // the answer must be one JSON value
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
};

struct Task {
  std::filesystem::path path;
  std::string name;  // the file's name without endings
  std::vector<ChoiceItem> choices;
  std::vector<AnswerItem> answers;
};

// References longer than this are refused: ROUGE-L takes time in proportion to both texts.
constexpr size_t max_reference_bytes = size_t{1} << 16;

// Plain, gzip or Zstandard. Errors: those of data::LineReader; corrupt, naming file and line, for a line that is no
// question, a key that is not known, and for a file without any.
Task read_task(const std::filesystem::path& path);

}  // namespace ingot::app::eval
