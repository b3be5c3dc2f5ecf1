// Sharding of the training state over data-parallel ranks (ZeRO: Rajbhandari and others 2019, arXiv 1910.02054).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/order.h"
#include "spec/context_rows.h"
#include "spec/model_shard.h"

namespace ingot::train {

// What one rank stores: of the parts of the model that it holds, at ZeRO stage 0 everything; 1: only its share of
// masters and moments; 2: also only its share of the step's gradients; 3: also only its share of the weights
// (train/sharded_weights.h). A single data-parallel rank stores everything at every stage. In a pipeline, whose stages
// add up gradients over a step, stage 3 leaves gradients whole.
struct ShardSpec {
  int rank = 0;   // among the ranks that divide the state of these parts among them (comm/grid.h)
  int ranks = 1;  // their number
  int zero = 0;
  // The parts: in a pipeline the rank's virtual stages, in order. Each has the same tp, tp_rank, ep and
  // ep_rank.
  std::vector<spec::ModelShard> shards{spec::ModelShard{}};

  int cp = 1;  // context-parallel ranks: neighbours that divide the tokens of the same sequences
  spec::CpCommType cp_comm_type = spec::CpCommType::a2a;
  // The ranks with these parts in `replicas` groups of `ranks` each: every group stores everything (hybrid sharding).
  int replica = 0;
  int replicas = 1;
  // The frozen weights are in host memory, and on the device while they are used (train/sharded_weights.h).
  bool offload_weights = false;
  // Slices of sums over what tensor-parallel ranks cut (nn/sliced_sum.h), and parts of an accumulation unit, of which
  // context-parallel ranks have whole ones (`parallel.units`): a multiple of tp() and of cp, or 1.
  int64_t sum_slices = 1;
  // Buckets of gradients are joined, in the order of backward, until they have as many bytes (`parallel.bucket_mib`);
  // 0: each block has its own. Their updated weights are gathered in the same buckets. Not for full training at ZeRO
  // stage 3, where gradients are divided like the weights.
  int64_t bucket_bytes = 0;

  // The ranks with sequences of their own.
  int data_parallel() const { return ranks * replicas / cp; }
  int zero_stage() const { return ranks > 1 ? zero : 0; }
  bool divides_gradients() const { return zero_stage() >= 2 && stages() == 1; }
  bool gathers_weights() const { return zero_stage() == 3 || offload_weights; }
  // The pipeline.
  int stages() const { return static_cast<int>(shards.front().pp / std::ssize(shards)); }
  int stage() const { return static_cast<int>(shards.front().stage); }
  // The ranks that share the tensors of its layers.
  int tp() const { return static_cast<int>(shards.front().tp); }
  int tp_rank() const { return static_cast<int>(shards.front().tp_rank); }
  bool sequence_parallel() const { return shards.front().sequence_parallel; }
  // The ranks that divide the experts: neighbours, in groups that divide `ranks`.
  int ep() const { return static_cast<int>(shards.front().ep); }
  int ep_rank() const { return static_cast<int>(shards.front().ep_rank); }
  // The ranks that divide the state of a tensor, and the number of this one among them; `divided`: it is of an expert
  // that not all of them have (spec::ModelShard::divides).
  int ranks_of(bool divided) const { return divided ? ranks / ep() : ranks; }
  int rank_of(bool divided) const { return divided ? rank / ep() : rank; }
  // Whether norms and exports get such a tensor from this one of the expert-parallel ranks, rather than from the first.
  bool is_first_with(bool divided) const { return divided || ep_rank() == 0; }
};

using spec::common;
using spec::Range;  // of a flattened tensor

// Divides tensors with the given numbers of elements among ranks; result by tensor and rank. With the tensors
// concatenated, each rank has one contiguous range, in rank order and of nearly equal size. Ranges within a tensor
// begin at multiples of ops::sum_squares_block, so that sums over these blocks do not depend on the number of ranks.
std::vector<std::vector<Range>> divide(std::span<const int64_t> elements, int ranks);
// The same where ranges within tensor i may begin at ends[i] only, ascending, of which the last is its number of
// elements.
std::vector<std::vector<Range>> divide(std::span<const std::vector<int64_t>> ends, int ranks);

// Elements of a held tensor [R, C] whose squares are added up before anything else.
struct SquareBlock {
  int64_t slice = 0;  // of the whole tensor: sums over its blocks in order are added in the order of the slices
  Range rows, columns;
};
// The blocks of a tensor of which `held` is held, and of it `slices`, numbers `first` on among those of the whole. They
// depend on the slice alone, not on what else is held. Each has at most ops::sum_squares_block elements or one row.
std::vector<SquareBlock> square_blocks(const spec::Slice& held, std::span<const spec::Slice> slices, int64_t first);
// Where ranks may divide a tensor with such rows without cutting one of its blocks, at least one; at multiples of 8.
std::vector<int64_t> block_ends(std::span<const SquareBlock> blocks, int64_t columns);

// Tensors in one memory, in an order in which the ranks' parts follow each other: each rank has one section.
struct Sections {
  std::vector<int64_t> offsets;  // by tensor: where it begins
  std::vector<size_t> sizes;     // by rank: its section, with what is between its parts
  int64_t total = 0;
};
// `order`: the tensors by their place in memory; `room`: what each takes; `parts`: by tensor and rank, as divide() and
// assign() give them. All in one unit.
Sections make_sections(std::span<const size_t> order, std::span<const int64_t> room,
                       std::span<const std::vector<Range>> parts, int ranks);

// Assigns whole tensors to ranks: from the largest to the smallest (of equal ones in order), each to the rank with the
// fewest elements in `loads` [ranks] so far, of equal ones the lowest; adds to `loads`. Result by tensor.
std::vector<int> assign(std::span<const int64_t> elements, std::vector<int64_t>& loads);

// The sequences of one rank: `sequences` form n accumulation units in order, of which rank r computes units
// [r n / ranks, (r + 1) n / ranks).
Range rank_sequences(int64_t sequences, int64_t accumulation_unit, int rank, int ranks);

// One rank's share of each step of an order. `whole` outlives it.
class RankOrder : public data::Order {
 public:
  RankOrder(const data::Order& whole, int64_t accumulation_unit, int rank, int ranks)
      : whole_(whole), accumulation_unit_(accumulation_unit), rank_(rank), ranks_(ranks) {}

  int64_t num_sequences() const override { return whole_.num_sequences(); }
  std::vector<int64_t> step_samples(int64_t step) const override;

 private:
  const data::Order& whole_;
  int64_t accumulation_unit_;
  int rank_, ranks_;
};

}  // namespace ingot::train
