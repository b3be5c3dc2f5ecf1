// Formatting of JSON objects that commands print.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

// One line. Bytes that are not UTF-8 become U+FFFD; numbers that are not finite become null.
std::string json_line(const nlohmann::ordered_json& value);

}  // namespace ingot
