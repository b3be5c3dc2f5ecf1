// Pre-tokenisation: a list of steps, each of which cuts every piece of a text into smaller ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/growth.h"
#include "text/regex.h"

namespace ingot::text {

// What a Split step does with a match: a piece of its own, dropped, or joined to a neighbour.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct PreTokenizerStep {
  enum class Kind {
    gpt2,              // split_gpt2
    llama3,            // split_llama3 with 3 digits
    qwen2,             // split_llama3 with 1 digit
    digits,            // whole numbers
    digit_characters,  // every \p{N} character by itself
    prefix_space,      // a space in front of every piece that does not start with one
    metaspace,         // ' ' becomes `literal`, with `prepend` and `cut`
    white_space,       // split_white_space
    words,             // split_words
    punctuation,       // ASCII punctuation and \p{P}, with behavior
    pattern,           // regex or literal, with behavior and invert
  };
  // Where metaspace puts its replacement in front, if the piece does not start with it.
  enum class Prepend { never, first, always };  // first: only the piece that the whole text starts with
  Kind kind = Kind::gpt2;
  std::shared_ptr<const Regex> regex;  // pattern: either this
  std::string literal;                 // or this, not empty
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // pattern: what does not match is the match
  Prepend prepend = Prepend::never;
  bool cut = false;  // metaspace: a new piece begins at every replacement
};

// The pieces of one text. Views point into that text, or into `text` where a step changed it.
struct Pieces {
  std::vector<std::string_view> views;
  std::unique_ptr<const std::string> text;
};

class PreTokenizer {
 public:
  // Appends a Split step. The patterns of GPT-2, Llama 3 and Qwen2 get their hand-written splitters, others PCRE2.
  // Errors: corrupt when the pattern does not compile.
  void add_regex(std::string_view pattern, SplitBehavior behavior, bool invert);
  void add_literal(std::string_view literal, SplitBehavior behavior, bool invert);
  void add_punctuation(SplitBehavior behavior);
  void add_metaspace(std::string_view replacement, PreTokenizerStep::Prepend prepend, bool cut);
  void add(PreTokenizerStep::Kind kind);

  // Thread-safe. Without steps the text is one piece; an empty text has none. `at_start`: the whole text starts here.
  // Errors: those of the patterns; unsupported beyond `limit`.
  Pieces split(std::string_view text, bool at_start, GrowthLimit& limit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace ingot::text
