// Normalisation of text before pre-tokenisation: a list of steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/charsmap.h"
#include "text/growth.h"
#include "text/regex.h"
#include "text/tainted_string.h"

namespace ingot::text {

struct NormalizerStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    strip_accents,  // drops marks (\p{M})
    strip_left,     // drops leading white space
    strip_right,    // drops trailing white space
    prepend,        // puts `to` before a nonempty text
    replace,        // replaces every `from` (not empty), or every match of `regex`, by `to`
    charsmap,
  };
  Kind kind = Kind::nfc;
  std::string from = {};
  std::string to = {};
  std::shared_ptr<const Regex> regex = nullptr;
  std::shared_ptr<const Charsmap> charsmap = nullptr;
};

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  // The normalised text with its content ranges; where a step joins content with other text, the result is content.
  // Errors: unsupported beyond `limit`.
  TaintedString apply(TaintedString text, GrowthLimit& limit) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// The non-overlapping occurrences of `of`, which must not be empty, in `text`, left to right.
ByteRanges occurrences(std::string_view text, std::string_view of);

// `text` with every occurrence of `from` (not empty) replaced by `to`. Errors: unsupported beyond `limit`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, GrowthLimit& limit);

}  // namespace ingot::text
