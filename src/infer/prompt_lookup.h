// Draft tokens for speculative decoding by prompt lookup (Saxena 2023, "Prompt Lookup Decoding"): no draft model,
// only what followed the same n-gram earlier in the text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot::infer {

// At max_tokens `max_tokens` ids: those after the last earlier occurrence of the text's final 3-gram, or else 2-gram,
// or else 1-gram. Empty if none of these occurs earlier.
std::vector<int32_t> prompt_lookup_draft(std::span<const int32_t> ids, int64_t max_tokens);

}  // namespace ingot::infer
