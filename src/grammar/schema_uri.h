// Resolution of URI references (RFC 3986, section 5.2) for $id and $ref, and JSON pointer tokens.
#pragma once

#include <string>
#include <string_view>

namespace ingot::grammar {

// `reference` resolved against `base`, which may be empty.
std::string resolved_uri(std::string_view base, std::string_view reference);

// A JSON pointer token with ~1 and ~0 unescaped.
std::string pointer_token(std::string_view token);

// A name escaped as a JSON pointer token.
std::string as_pointer_token(std::string_view name);

}  // namespace ingot::grammar
