// Numbers as a person writes them on the command line and in recipes: read whole or not at all, and never cut to what
// fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

// "12", "+12", "-3", or a whole number such as "1e9" (up to 2^53, beyond which a double names no single one). Nothing
// for anything else, and for what 64 bits do not hold.
std::optional<int64_t> parse_whole(std::string_view text);

// "0.5", "-1e-4", "3". Nothing for anything else, and for what a double cannot hold, infinity and NaN among them.
std::optional<double> parse_real(std::string_view text);

}  // namespace ingot
