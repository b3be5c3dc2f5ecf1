// Parses JSON of untrusted files and rejects duplicate keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot::formats {

// Errors: corrupt, beginning with `source`, for text that is not UTF-8 JSON, for duplicate keys in an object (a normal
// parser would keep only the last one), and for values nested more than 8 deep.
nlohmann::json parse_unique_json(std::string_view text, const std::string& source);

}  // namespace ingot::formats
