#include "data/corpus.h"

#include "base/error.h"

namespace ingot::data {

void Corpus::add(const TokenizedDocument& document) {
  if (document.ids.size() != document.loss_mask.size()) {
    throw_error(ErrorKind::internal, "a document of {} tokens has {} loss marks", document.ids.size(),
                document.loss_mask.size());
  }
  ids_.insert(ids_.end(), document.ids.begin(), document.ids.end());
  loss_mask_.insert(loss_mask_.end(), document.loss_mask.begin(), document.loss_mask.end());
  offsets_.push_back(static_cast<int64_t>(ids_.size()));
  splittable_.push_back(document.splittable ? 1 : 0);
}

Corpus::View Corpus::document(int64_t index) const {
  const size_t d = static_cast<size_t>(index);
  const size_t begin = static_cast<size_t>(offsets_[d]);
  const size_t length = static_cast<size_t>(offsets_[d + 1]) - begin;
  return {std::span(ids_).subspan(begin, length), std::span(loss_mask_).subspan(begin, length), splittable_[d] != 0};
}

}  // namespace ingot::data
