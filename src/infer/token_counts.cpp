#include "infer/token_counts.h"

namespace ingot::infer {

TokenCounts::TokenCounts(std::span<const int32_t> ids, int64_t prompt) {
  const auto first = static_cast<size_t>(prompt);
  for (const int32_t id : ids.first(first)) ++by_id_[id].prompt;
  for (const int32_t id : ids.subspan(first)) add(id);
}

void TokenCounts::remove(int32_t id) {
  const auto found = by_id_.find(id);
  Count& count = found->second;
  if (--count.output == 0 && count.prompt == 0) by_id_.erase(found);
}

}  // namespace ingot::infer
