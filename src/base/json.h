// JSON parsing, limited to max_json_depth levels of nesting. parse_json is strict, for data files and requests: what
// other parsers silently accept is an error. parse_lenient_json is for files of other programs (configurations,
// tokenizers, indices) and treats duplicate keys as Python does. No other code calls nlohmann's parser
// (tools/check_symbols.py).
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/nesting.h"

namespace ingot {

// Limits, so that the cost of a line is proportional to its length: looking up a key is linear in the number of keys.
constexpr size_t max_json_keys = 1024;               // per object
constexpr size_t max_json_values = size_t{1} << 20;  // per text

struct JsonLimits {
  size_t depth = max_json_depth;
  size_t keys = max_json_keys;
  size_t values = max_json_values;
};

// Parses one JSON value (RFC 8259) with nothing after it. Errors: corrupt for text that is not JSON or not UTF-8, a
// duplicate key in an object, a number beyond a double, and texts beyond the limits. The message begins with the verb
// ("is not JSON: ...") and does not name the source: the caller knows file and line.
nlohmann::ordered_json parse_json(std::string_view text, const JsonLimits& limits = {});

// The same for text that must be an object. Errors: also corrupt for another kind of value.
nlohmann::ordered_json parse_json_object(std::string_view text);

// Parses one JSON value with nothing after it and any number of keys and values; the last of duplicate keys counts.
// Errors: corrupt for text that is not JSON or deeper than max_json_depth; messages as parse_json's.
nlohmann::json parse_lenient_json(std::string_view text);
// The same, but objects keep the order of their keys.
nlohmann::ordered_json parse_lenient_ordered_json(std::string_view text);
// The same, but for invalid text returns a discarded value, which has no type that a caller could ask for.
nlohmann::ordered_json try_parse_json(std::string_view text);

}  // namespace ingot
