// A bound on what the normalizer and the pre-tokenizer make of a text. The files that describe them may come from
// anyone, and a few replacements one after the other grow a short text to any length.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace ingot::text {

// Most that one byte may become. The largest of Unicode's own, U+FDFA in its compatibility form, becomes eleven times
// its bytes, thirteen where spaces are escaped too.
constexpr size_t max_growth = 16;

// The bound holds for a text that is worked on in parts: what counts is the sum over the parts of the largest size that
// each of them has at any time.
class GrowthLimit {
 public:
  explicit GrowthLimit(size_t text_bytes) : text_(text_bytes), limit_(max_growth * text_bytes + 4096) {}

  // To be called before the part takes so many bytes. ErrorKind::unsupported when that is too much.
  void check(size_t bytes) {
    largest_ = std::max(largest_, bytes);
    if (done_ + largest_ <= limit_) return;
    throw_hint(ErrorKind::unsupported, "look at the normalizer and the pre-tokenizer in the model's tokenizer file",
               "the tokenizer makes more than {} bytes of a text of {} bytes", limit_, text_);
  }

  void next_part() {
    done_ += largest_;
    largest_ = 0;
  }

 private:
  size_t text_;
  size_t limit_;
  size_t done_ = 0;     // of the parts before
  size_t largest_ = 0;  // of this part
};

}  // namespace ingot::text
