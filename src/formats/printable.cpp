#include "formats/printable.h"

#include <fmt/core.h>

namespace ingot::formats {

std::string printable(std::string_view text) {
  constexpr size_t limit = 80;
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  out += "'";
  return out;
}

}  // namespace ingot::formats
