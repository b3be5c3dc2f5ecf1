#include "infer/prompt_lookup.h"

#include <algorithm>

namespace ingot::infer {

std::vector<int32_t> prompt_lookup_draft(std::span<const int32_t> ids, int64_t max_tokens) {
  for (size_t words = 3; words > 0 && max_tokens > 0; --words) {
    if (ids.size() <= words) continue;
    const std::span<const int32_t> last = ids.last(words);
    const auto end = ids.end() - 1;  // excludes the n-gram at the end itself
    const auto found = std::find_end(ids.begin(), end, last.begin(), last.end());
    if (found == end) continue;
    const auto next = found + static_cast<int64_t>(words);
    return {next, next + std::min(max_tokens, ids.end() - next)};
  }
  return {};
}

}  // namespace ingot::infer
