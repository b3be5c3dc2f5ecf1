// The process grid: what each rank of the world is among the data-parallel, pipeline and tensor-parallel ranks.
#pragma once

#include "comm/group.h"

namespace ingot::comm {

struct Extents {
  int dp = 1;  // data-parallel ranks
  int pp = 1;  // pipeline stages
  int tp = 1;  // ranks that share the tensors of a layer
};

// World rank = (pp rank * dp + dp rank) * tp + tp rank: ranks that talk most are neighbours.
struct Grid {
  Group world;
  Group dp;  // those with the same part of the model
  Group pp;  // those with the same sequences, by stage
  Group tp;  // those with the same sequences and stage
};

// Collective. ErrorKind::usage when the extents are not the world's size, naming both.
Grid make_grid(const Group& world, const Extents& extents);

}  // namespace ingot::comm
