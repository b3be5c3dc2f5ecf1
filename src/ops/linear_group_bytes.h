// Scratch bytes of linear layers with the same input. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Bytes that `linear_group` may take from the scratch arena for the results of weights of one type with x: those of one
// gemm for all, on GPUs. `out`: of all weights together. `host_visible`: Device::host_visible().
constexpr size_t linear_group_bytes(int64_t tokens, int64_t out, size_t activation_bytes, bool host_visible) {
  constexpr size_t alignment = 64;  // as Arena::footprint
  if (host_visible) return 0;
  return (static_cast<size_t>(tokens * out) * activation_bytes + alignment - 1) / alignment * alignment;
}

}  // namespace ingot::ops
