// Scratch bytes of fp8 linear layers. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Upper bound on the bytes that `linear_fp8` or `linear_fp8_backward_input` of `tokens` x [out, in] takes from the
// scratch arena. `rounded`: the weight must be rounded; otherwise it is stored in fp8.
// `host_visible`: as in decoded_rows().
size_t linear_fp8_bytes(int64_t tokens, int64_t out, int64_t in, bool rounded, bool host_visible);

}  // namespace ingot::ops
