// A bound on the size of normalised and pre-tokenized text. Tokenizer files are untrusted, and a few chained
// replacements can grow a short text to any length.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace ingot::text {

// Max output bytes for each input byte. The largest expansion in Unicode, of U+FDFA in its compatibility form, is
// eleven times its bytes, or thirteen if spaces are escaped too.
constexpr size_t max_growth = 16;

// Bounds a text that is processed in parts: the sum over the parts of each part's peak size is limited.
class GrowthLimit {
 public:
  explicit GrowthLimit(size_t text_bytes) : text_(text_bytes), limit_(max_growth * text_bytes + 4096) {}

  // Must be called before the current part grows to `bytes`. Errors: unsupported beyond the limit.
  void check(size_t bytes) {
    largest_ = std::max(largest_, bytes);
    if (done_ + largest_ <= limit_) return;
    throw_hint(ErrorKind::unsupported, "check the normalizer and the pre-tokenizer in the model's tokenizer file",
               "the tokenizer produces more than {} bytes from a text of {} bytes", limit_, text_);
  }

  void next_part() {
    done_ += largest_;
    largest_ = 0;
  }

 private:
  size_t text_;
  size_t limit_;
  size_t done_ = 0;     // sum of the peak sizes of the previous parts
  size_t largest_ = 0;  // peak size of the current part
};

}  // namespace ingot::text
