// Scratch bytes of linear layers with int8 activations. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// The bytes that `linear_int8` takes from the scratch arena for `tokens` x [.., in].
size_t linear_int8_bytes(int64_t tokens, int64_t in);

}  // namespace ingot::ops
