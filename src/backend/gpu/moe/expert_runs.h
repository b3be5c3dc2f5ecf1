// Weights of experts in a device's memory, as one launch addresses them. Host code.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/weight.h"

namespace ingot::gpu {

// Calls body(first, count, bytes) for runs of experts whose weights have one storage and lie at one distance of `bytes`
// from each other. An arena that was filled in the order of the experts gives one run.
template <class Body>
void for_expert_runs(std::span<const Weight> weights, Body body) {
  const auto distance = [&](size_t e) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(weights[e + 1].data) -
                                reinterpret_cast<uintptr_t>(weights[e].data));
  };
  for (size_t first = 0, end = 0; first < weights.size(); first = end) {
    const bool pair = first + 1 < weights.size() && weights[first + 1].storage == weights[first].storage;
    const int64_t bytes = pair ? distance(first) : 0;
    end = first + 1;
    while (end < weights.size() && weights[end].storage == weights[first].storage && distance(end - 1) == bytes) ++end;
    body(first, end - first, bytes);
  }
}

}  // namespace ingot::gpu
