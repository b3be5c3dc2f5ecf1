// Ids of answers and requests that cannot be guessed.
#pragma once

#include <string>

namespace ingot::server {

// The prefix and 24 random hexadecimal digits.
std::string make_id(const char* prefix);

}  // namespace ingot::server
