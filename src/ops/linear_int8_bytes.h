// Scratch bytes of linear layers with int8 activations. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// The bytes that `linear_int8` takes from the scratch arena for `tokens` x [.., in]: for four blocks of 32 elements
// their integers, and as many bytes of corrections and of scales.
constexpr size_t linear_int8_bytes(int64_t tokens, int64_t in) {
  constexpr int64_t elements = 128;
  return static_cast<size_t>(tokens * ((in + elements - 1) / elements) * 3 * elements);
}

}  // namespace ingot::ops
