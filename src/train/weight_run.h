// The updated weights that ranks which divide the optimizer's state (ZeRO stages 1 and 2) gather by one operation.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "train/sharding.h"

namespace ingot::train {

// A tensor whose elements ranks update.
struct DividedWeight {
  size_t room = 0;           // bytes from its beginning to that of the next tensor in memory
  size_t width = 0;          // bytes of an element
  std::vector<Range> parts;  // by rank: elements; at least one rank has some
};

// Consecutive tensors in memory, in which the ranks' parts follow each other.
struct WeightRun {
  size_t tensors = 0;            // their number
  std::byte* memory = nullptr;   // of the first
  std::vector<size_t> sections;  // by rank: bytes of its parts, with what is between them

  size_t bytes() const;  // of all sections
};

// The fewest runs of tensors that follow each other in memory, without `memory`: one, unless a rank has a part of a
// tensor that comes after a part of a later rank, as where ranks have tensors as wholes.
std::vector<WeightRun> weight_runs(std::span<const DividedWeight> weights, int ranks);

}  // namespace ingot::train
