// Guessing what comes next by looking it up in the text itself (prompt look-up: Saxena 2023, "Prompt Lookup Decoding"):
// no model, only what followed the same words before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot::infer {

// At most `most` ids that followed the last earlier place where the text's last three ids (or else two, or else one)
// stand; none where they never stood before.
std::vector<int32_t> guess(std::span<const int32_t> ids, int64_t most);

}  // namespace ingot::infer
