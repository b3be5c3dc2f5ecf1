// JSON as data files and requests hold it, read strictly: what other readers pass over in silence is an error here.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace ingot {

// Limits, so that no line costs more than its length: deeper values would need more stack than there is, and looking up
// a key takes time in proportion to their number.
constexpr int max_json_depth = 64;
constexpr size_t max_json_keys = 1024;               // of one object
constexpr size_t max_json_values = size_t{1} << 20;  // of one text

struct JsonLimits {
  size_t depth = max_json_depth;
  size_t keys = max_json_keys;
  size_t values = max_json_values;
};

// One JSON value (RFC 8259), and nothing behind it. Errors: corrupt for text that is not JSON or not UTF-8, a key that
// an object has twice, a number beyond a double, and more than the limits; the message begins with the verb ("is not
// JSON: ...") and does not say where the text stands: the caller knows file and line.
nlohmann::ordered_json parse_json(std::string_view text, const JsonLimits& limits = {});

// The same, and an object. Errors: also corrupt for another kind of value.
nlohmann::ordered_json parse_json_object(std::string_view text);

}  // namespace ingot
