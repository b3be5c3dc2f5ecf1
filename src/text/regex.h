// Regular expressions with Unicode classes (PCRE2, hidden in the .cpp), for pre-tokenizer patterns without a
// hand-written splitter. Invalid UTF-8 in the text is never part of a match.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::text {

class Regex {
 public:
  // Errors: corrupt, with PCRE2's message, when the pattern does not compile; unsupported for syntax that means
  // something else in the regular expressions of the tokenizers library.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Byte ranges [begin, end) of all non-overlapping, non-empty matches, in order. Thread-safe.
  // Errors: unsupported when the pattern needs more backtracking than PCRE2 allows.
  std::vector<std::pair<size_t, size_t>> find_all(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_;
};

}  // namespace ingot::text
