// Normalisation of text before pre-tokenisation: a list of steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/charsmap.h"
#include "text/growth.h"
#include "text/marked_string.h"
#include "text/regex.h"

namespace ingot::text {

struct NormalizerStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    strip_accents,  // drops marks (\p{M})
    strip_left,     // drops the white space at the start
    strip_right,    // and at the end
    prepend,        // `to` in front of a text that is not empty
    replace,        // every `from` (not empty), or every match of `regex`, becomes `to`
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
  // What becomes of the text, and what of that is content; where a step joins content and other text, the result is
  // content. Errors: unsupported beyond `limit`.
  MarkedString apply(MarkedString text, GrowthLimit& limit) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// Where `of`, which is not empty, stands in `text`, left to right.
ByteRanges occurrences(std::string_view text, std::string_view of);

// `text` with every occurrence of `from` (not empty) replaced by `to`. Errors: beyond `limit`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, GrowthLimit& limit);

}  // namespace ingot::text
