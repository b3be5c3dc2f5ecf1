// The byte alphabet of byte-level BPE vocabularies, which writes every byte as a printable character
// (bytes_to_unicode of github.com/openai/gpt-2, src/encoder.py): bytes 33-126, 161-172 and 174-255 are written as
// themselves, the other 68 as U+0100, U+0101, ... in ascending order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ingot::text {

// The bytes of a token written in the byte alphabet; nullopt when a character is not one of the 256.
std::optional<std::string> decode_byte_alphabet(std::string_view token);

// The inverse, for any bytes.
std::string encode_byte_alphabet(std::string_view bytes);

}  // namespace ingot::text
