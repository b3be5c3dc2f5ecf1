// A bound on what the steps of a tokenizer make of a text: files come from anywhere, and a few replacements one after
// the other make any length of a short text.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace ingot::text {

// Most that one byte may become. The largest of Unicode's own, U+FDFA in its compatibility form, becomes eleven times
// its bytes, thirteen where spaces are escaped too.
constexpr size_t max_growth = 16;

class GrowthLimit {
 public:
  explicit GrowthLimit(size_t text_bytes) : text_(text_bytes), limit_(max_growth * text_bytes + 4096) {}

  // To be called before so many bytes are held. ErrorKind::unsupported when that is too much.
  void check(size_t bytes) const {
    if (bytes <= limit_) return;
    throw_hint(ErrorKind::unsupported, "look at the normalizer and the pre-tokenizer in the model's tokenizer file",
               "the tokenizer makes more than {} bytes of a text of {} bytes", limit_, text_);
  }

 private:
  size_t text_;
  size_t limit_;
};

}  // namespace ingot::text
