// JSON of files that nobody vouches for, in which no object has a key twice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot::formats {

// Errors: corrupt, beginning with `source`, for text that is not UTF-8 JSON, a key that an object has twice (of which a
// parsed value would keep only the last), and values nested more than 8 deep.
nlohmann::json parse_unique_json(std::string_view text, const std::string& source);

}  // namespace ingot::formats
