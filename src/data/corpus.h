// Tokenized documents, one behind the other in flat arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/document.h"

namespace ingot::data {

// One document as ids. counted[i] is 1 when predicting ids[i] from what is before it counts in the loss (so counted[0]
// never has an effect); both have the same length.
struct TokenizedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counted;
  bool splittable = false;  // may be cut into several sequences (plain text); else it is kept in one piece
};

class Corpus {
 public:
  struct View {
    std::span<const int32_t> ids;
    std::span<const uint8_t> counted;
    bool splittable = false;
  };

  void add(const TokenizedDocument& document);

  int64_t num_documents() const { return static_cast<int64_t>(splittable_.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }
  View document(int64_t index) const;  // REQUIRES 0 <= index < num_documents(); valid until the next add

 private:
  std::vector<int32_t> ids_;
  std::vector<uint8_t> counted_;
  std::vector<int64_t> offsets_{0};  // document d is tokens offsets_[d] .. offsets_[d + 1]
  std::vector<uint8_t> splittable_;
};

}  // namespace ingot::data
