// References between URIs (RFC 3986, section 5.2), as $id and $ref use them.
#pragma once

#include <string>
#include <string_view>

namespace ingot::grammar {

// `reference` as seen from `base`, which may be empty.
std::string resolved_uri(std::string_view base, std::string_view reference);

// A JSON pointer's token with ~1 and ~0 read.
std::string pointer_token(std::string_view token);

// A name as a JSON pointer's token.
std::string as_pointer_token(std::string_view name);

}  // namespace ingot::grammar
