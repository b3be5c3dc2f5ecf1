#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace ingot::text {
namespace {

struct Alphabet {
  std::array<uint32_t, 256> stand_in{};   // by byte
  std::array<int16_t, 256 + 68> byte_of;  // by code point, -1 for none

  Alphabet() {
    byte_of.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
      stand_in[byte] = printable ? byte : next++;
      byte_of[stand_in[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

std::optional<std::string> decode_byte_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = decode_utf8(token, at);
    if (c.code_point >= alphabet().byte_of.size() || alphabet().byte_of[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte_of[c.code_point]));
    at += c.size;
  }
  return bytes;
}

std::string encode_byte_alphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(token, alphabet().stand_in[static_cast<uint8_t>(byte)]);
  return token;
}

}  // namespace ingot::text
