// Names of answers and requests, which nobody can guess.
#pragma once

#include <string>

namespace ingot::server {

// The prefix and 24 hexadecimal digits.
std::string make_id(const char* prefix);

}  // namespace ingot::server
