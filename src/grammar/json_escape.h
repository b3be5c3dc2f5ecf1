// A partly read escape sequence of a JSON string.
#pragma once

#include <cstdint>

namespace ingot::grammar {

struct JsonEscape {
  enum class Stage : uint8_t { none, backslash, digits, low_backslash, low_u };
  Stage stage = Stage::none;
  uint8_t digits = 0;  // hexadecimal digits read after \u, 0 to 3
  uint16_t value = 0;  // of these digits
  uint16_t high = 0;   // the high surrogate of a pair, if it was read; otherwise 0

  int64_t packed() const {
    return static_cast<int64_t>(stage) | int64_t{digits} << 8 | int64_t{value} << 16 | int64_t{high} << 32;
  }
  static JsonEscape of(int64_t packed) {
    return {static_cast<Stage>(packed & 0xFF), static_cast<uint8_t>(packed >> 8 & 0xFF),
            static_cast<uint16_t>(packed >> 16 & 0xFFFF), static_cast<uint16_t>(packed >> 32 & 0xFFFF)};
  }
};

}  // namespace ingot::grammar
