// Makes text from an untrusted file fit for an error message.
#pragma once

#include <string>
#include <string_view>

namespace ingot::formats {

// At most 80 bytes of `text` in single quotes; bytes outside printable ASCII appear as \xNN, a truncation as "...".
std::string printable(std::string_view text);

}  // namespace ingot::formats
