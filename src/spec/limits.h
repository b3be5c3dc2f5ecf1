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

// ErrorKind::usage when `tp` ranks cannot have equal shares of `count`.
inline void check_divides(int64_t tp, const char* what, int64_t count) {
  if (count % tp == 0) return;
  throw_error(ErrorKind::usage, "tp is {}, which does not divide the model's {} {}", tp, count, what);
}

}  // namespace ingot::spec
