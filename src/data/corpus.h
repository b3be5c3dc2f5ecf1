// Tokenized documents, stored consecutively in flat arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/document.h"

namespace ingot::data {

// A document as token ids. loss_mask[i] is 1 when the prediction of ids[i] from the tokens before it is in the loss (so
// loss_mask[0] has no effect); both vectors have the same length.
struct TokenizedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> loss_mask;
  bool splittable = false;  // may be split over several sequences (plain text)
};

class Corpus {
 public:
  struct View {
    std::span<const int32_t> ids;
    std::span<const uint8_t> loss_mask;
    bool splittable = false;
  };

  void add(const TokenizedDocument& document);

  int64_t num_documents() const { return static_cast<int64_t>(splittable_.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }
  View document(int64_t index) const;  // REQUIRES 0 <= index < num_documents(); valid until the next add

 private:
  std::vector<int32_t> ids_;
  std::vector<uint8_t> loss_mask_;
  std::vector<int64_t> offsets_{0};  // document d has tokens offsets_[d] .. offsets_[d + 1]
  std::vector<uint8_t> splittable_;
};

}  // namespace ingot::data
