// The printable stand-ins for bytes that byte-level BPE vocabularies are written in (specs/tokenizers.md, section 1):
// bytes 33-126, 161-172 and 174-255 stand for themselves, the other 68 are U+0100, U+0101, ... in ascending order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ingot::text {

// Bytes of a token written in stand-ins; nothing when a character is not one of the 256.
std::optional<std::string> bytes_from_stand_ins(std::string_view token);

// The inverse, for any bytes.
std::string stand_ins_from_bytes(std::string_view bytes);

}  // namespace ingot::text
