// Checks that the parts of a model's description share.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/error.h"

namespace ingot::spec {

// ErrorKind::corrupt, naming `what` and the value, outside 1 .. 2^31.
inline void check_positive(const char* what, int64_t value) {
  if (value < 1 || value > (int64_t{1} << 31)) {
    throw_error(ErrorKind::corrupt, "the model's {} is {}, which is out of range", what, value);
  }
}

inline void check_not_negative(const char* what, double value) {
  if (!(value >= 0 && std::isfinite(value))) throw_error(ErrorKind::corrupt, "{} is {}", what, value);
}

// ErrorKind::unsupported when `wrong`.
inline void check_together(bool wrong, const char* one, const char* other) {
  if (wrong) throw_error(ErrorKind::unsupported, "a model with {} and {} is not supported", one, other);
}

// A number of equal parts, and the setting that says it.
struct Parts {
  int64_t count = 1;
  const char* setting = "tp";
  bool copies = true;  // where there are more of them than key/value heads, neighbours may have the same one
};

// ErrorKind::usage when `count` cannot be divided into these parts.
inline void check_divides(Parts parts, const char* what, int64_t count) {
  if (count % parts.count == 0) return;
  throw_error(ErrorKind::usage, "{} is {}, which does not divide the model's {} {}", parts.setting, parts.count, count,
              what);
}

}  // namespace ingot::spec
