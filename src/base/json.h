// JSON texts, each no deeper than max_json_depth levels. parse_json reads what data files and requests hold, strictly:
// what other readers pass over in silence is an error there. parse_lenient_json reads what other programs have written
// (configurations, tokenizers, indices), as Python does. Nothing else calls nlohmann's parser (tools/check_symbols.py).
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/nesting.h"

namespace ingot {

// Limits, so that no line costs more than its length: looking up a key takes time in proportion to their number.
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

// One JSON value and nothing behind it, of any number of keys and values; of a key that an object has twice the last
// counts. Errors: corrupt for text that is not JSON or deeper than max_json_depth; messages as parse_json's.
nlohmann::json parse_lenient_json(std::string_view text);
// The same with the keys of objects in their order.
nlohmann::ordered_json parse_lenient_ordered_json(std::string_view text);
// The same; what is no such text gives a discarded value, which is of no type that a caller could ask for.
nlohmann::ordered_json try_parse_json(std::string_view text);

}  // namespace ingot
