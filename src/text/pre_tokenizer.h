// Pre-tokenization: a list of steps, each of which splits every piece of a text into smaller ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/growth.h"
#include "text/regex.h"

namespace ingot::text {

// What a Split step does with a match: makes it a piece of its own, drops it, or joins it to a neighbour.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct PreTokenizerStep {
  enum class Kind {
    gpt2,              // split_gpt2
    llama3,            // split_llama3 with 3 digits
    qwen2,             // split_llama3 with 1 digit
    digits,            // splits out runs of numeric characters
    digit_characters,  // splits out every \p{N} character
    prefix_space,      // puts a space before every piece that does not start with one
    metaspace,         // replaces ' ' by `literal`; uses `prepend` and `cut`
    white_space,       // split_white_space
    words,             // split_words
    punctuation,       // splits at ASCII punctuation and \p{P}; uses `behavior`
    pattern,           // splits at `regex` or `literal`; uses `behavior` and `invert`
  };
  // Which pieces metaspace prefixes with its replacement, unless they start with it.
  enum class Prepend { never, first, always };  // first: only the piece at the start of the whole text
  Kind kind = Kind::gpt2;
  std::shared_ptr<const Regex> regex;  // pattern: either a regular expression
  std::string literal;                 // or a literal, not empty; metaspace: the replacement
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // pattern: the text between the matches counts as the match
  Prepend prepend = Prepend::never;
  bool cut = false;  // metaspace: start a new piece at every replacement
};

// The pieces of one text. The views point into that text, or into `text` if a step rewrote it.
struct Pieces {
  std::vector<std::string_view> views;
  std::unique_ptr<const std::string> text;
};

class PreTokenizer {
 public:
  // Appends a Split step. The patterns of GPT-2, Llama 3 and Qwen2 use hand-written splitters, others PCRE2. Errors:
  // corrupt when the pattern does not compile.
  void add_regex(std::string_view pattern, SplitBehavior behavior, bool invert);
  void add_literal(std::string_view literal, SplitBehavior behavior, bool invert);
  void add_punctuation(SplitBehavior behavior);
  void add_metaspace(std::string_view replacement, PreTokenizerStep::Prepend prepend, bool cut);
  void add(PreTokenizerStep::Kind kind);

  // Thread-safe. Without steps the text is one piece; an empty text has none. `at_start`: `text` is at the start of the
  // whole text. Errors: those of the patterns; unsupported beyond `limit`.
  Pieces split(std::string_view text, bool at_start, GrowthLimit& limit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace ingot::text
