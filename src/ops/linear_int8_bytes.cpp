#include "ops/linear_int8_bytes.h"

namespace ingot::ops {

size_t linear_int8_bytes(int64_t tokens, int64_t in) {
  constexpr int64_t elements = 64;         // two blocks
  constexpr int64_t bytes = 3 * elements;  // integers, and as many bytes of corrections and of scales
  return static_cast<size_t>(tokens * ((in + elements - 1) / elements) * bytes);
}

}  // namespace ingot::ops
