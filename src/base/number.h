// Numbers as people write them on the command line and in recipes: the whole text must be a number, and values that do
// not fit are refused, not clamped.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

// "12", "+12", "-3", or a whole number such as "1e9" (up to 2^53, beyond which doubles skip integers). Nothing for any
// other text, and for values that 64 bits do not hold.
std::optional<int64_t> parse_int(std::string_view text);

// "0.5", "-1e-4", "3". Nothing for any other text, and for what a double cannot hold, infinity and NaN included.
std::optional<double> parse_double(std::string_view text);

}  // namespace ingot
