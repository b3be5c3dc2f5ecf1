// How the state of a run is divided over its data-parallel ranks (ZeRO: Rajbhandari and others 2019, arXiv 1910.02054).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/order.h"

namespace ingot::train {

// What one of several ranks keeps. Stage 0: everything. 1: its part of masters and moments. 2: of the step's gradients
// too. One rank has everything whatever the stage.
struct Share {
  int rank = 0;
  int ranks = 1;
  int zero = 0;

  int stage() const { return ranks > 1 ? zero : 0; }
};

// Elements [begin, end) of a tensor, flat.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// The parts of ranks in tensors of so many elements, by tensor and rank: rank r's parts lie behind those of r - 1 when
// the tensors are one behind the other, all nearly as large. A part begins at a multiple of ops::sum_squares_block, so
// that sums over such blocks are the same however many ranks there are.
std::vector<std::vector<Range>> divide(std::span<const int64_t> elements, int ranks);

// The units of work of one rank, as sequences: of `sequences`, whole units of `unit` in order, rank r computes units
// [r n / ranks, (r + 1) n / ranks).
Range share_of(int64_t sequences, int64_t unit, int rank, int ranks);

// One rank's share of every step of an order, which outlives it.
class ShareOrder : public data::Order {
 public:
  ShareOrder(const data::Order& whole, int64_t unit, int rank, int ranks)
      : whole_(whole), unit_(unit), rank_(rank), ranks_(ranks) {}

  int64_t num_sequences() const override { return whole_.num_sequences(); }
  std::vector<int64_t> step_samples(int64_t step) const override;

 private:
  const data::Order& whole_;
  int64_t unit_;
  int rank_, ranks_;
};

}  // namespace ingot::train
