// The share of a model that one rank of a process grid holds: an equal share of the attention heads and of the MLPs'
// inner features, and a range of the vocabulary's rows of the token embedding and of the head (tensor parallelism,
// Shoeybi et al. 2019, arXiv 1909.08053); where there are more ranks than key/value heads, neighbours have a copy of
// the same one; and a range of the blocks (a pipeline stage). Norms, routers and learned positions are on every rank of
// a stage that has them. The last stage has a copy of a tied embedding, as its head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/context_rows.h"
#include "spec/lora.h"
#include "spec/model.h"
#include "spec/slice.h"

namespace ingot::spec {

struct ModelShard {
  int64_t tp = 1;
  int64_t tp_rank = 0;
  int64_t pp = 1;
  int64_t stage = 0;
  // Ranks with the same part of everything else, each of which has an equal share of every mixture's experts (expert
  // parallelism: Lepikhin et al. 2020, arXiv 2006.16668).
  int64_t ep = 1;
  int64_t ep_rank = 0;
  // Norms and the residual of a batch have 1/tp of its rows on each tensor-parallel rank (Korthikanti et al. 2022,
  // arXiv 2205.05198).
  bool sequence_parallel = false;

  // The ranks among which those rows are divided.
  int64_t row_ranks() const { return sequence_parallel ? tp : 1; }
  bool first() const { return stage == 0; }
  bool last() const { return stage == pp - 1; }
  // Whether expert-parallel ranks divide such parameters among them.
  bool divides(const ParamSpec& p) const { return ep > 1 && p.expert >= 0; }
};

// ErrorKind::usage, naming the sizes, when the model is not divisible this way; unsupported for what cannot be split
// yet.
void check(const ModelSpec& model, const ModelShard& shard);

// The same for the slices of sums over what tensor parallelism cuts (`parallel.units`), a power of two. The hint names
// the most that work below it.
void check_sum_slices(const ModelSpec& model, int64_t slices);

// Context-parallel ranks, each with some of the tokens of a sequence of `sequence_length`, and for a2a some of the
// heads that each of `tp` tensor-parallel ranks has.
struct ContextParallel {
  int64_t ranks = 1;
  int64_t tp = 1;
  int64_t sequence_length = 0;
  bool bitwise = false;  // no two of them have the same key/value head, whose gradient would be a sum over them
  CpCommType type = CpCommType::a2a;
};
// ErrorKind::usage, naming the sizes and the numbers that can, unless they can share these.
void check_context_parallel(const ModelSpec& model, const ContextParallel& cp);

// The blocks of the shard, by their index in the model. Stages have equal numbers of blocks, earlier ones one more if
// that does not come out even; but the last one, which also has the head, as many fewer as make the longest stage
// shortest, by the weights that a token is multiplied with, and at least one.
Range blocks_of(const ModelSpec& model, const ModelShard& shard);

// The tokens whose rows of the embedding and of the head the shard has; the ranks' numbers differ by at most 1.
Range vocabulary_of(const ModelSpec& model, const ModelShard& shard);

// The model's hyper-parameters with the shard's sizes: its blocks, with its share of their heads and MLP features.
ModelSpec sizes_of(const ModelSpec& model, const ModelShard& shard);

// Whether a shard has this parameter, or its part of it, or a copy of a tied embedding.
bool holds(const ModelSpec& model, const ModelShard& shard, const ParamSpec& p);

// How the ranks of a tensor-parallel group have a trainable tensor.
enum class TensorPlacement {
  replicated,  // each has all of it, and computes its gradient
  partial,     // each has all of it; its gradient is the sum of what they compute
  sharded,     // each has a part of it, and computes that part's gradient
};

// The rows of a sharded tensor that are of a key/value head which `ranks` neighbours have: those from row `begin` of
// the slice on. Each computes what its own query heads give of their gradient, which is the sum.
struct CopiedRows {
  int64_t begin = 0;
  int64_t ranks = 1;  // 1: there are none
};

// What a rank of a tensor-parallel group has of a tensor.
struct HeldPart {
  Slice slice;
  TensorPlacement placement = TensorPlacement::replicated;
  CopiedRows copied;

  // The number of the slice's first elements that norms, checkpoints and exports get from this rank: of what several
  // ranks have, they get the first one's.
  int64_t counted_elements(const ModelShard& shard) const;
};

struct HeldParameter : HeldPart {
  size_t whole = 0;      // index in parameters(model)
  ParamSpec held;        // names and indices as in the whole model, shape as held
  bool divided = false;  // ModelShard::divides
  // The last stage's copy of a tied embedding, which the first stage holds too: each computes the gradient of its own
  // use, and the parameter's is their sum.
  bool copy = false;
};

// The shard's parameters, in the order of parameters(model).
std::vector<HeldParameter> held_parameters(const ModelSpec& model, const ModelShard& shard);

// Those of a rank of a pipeline, whose `shards` are its virtual stages. Each comes once: a rank with the first and the
// last stage has one tied embedding for both uses, and it is no copy.
std::vector<HeldParameter> held_parameters(const ModelSpec& model, std::span<const ModelShard> shards);

// One of an adapter's two matrices as a rank holds it: A [rank, in] has the columns of the base weight, B [out, rank]
// its rows.
struct HeldAdapterMatrix : HeldPart {
  std::vector<int64_t> whole;  // shape
};
struct HeldAdapter {
  LoraParam adapter;  // of the whole model
  HeldAdapterMatrix a, b;
};

// `base`: the held part of the weight that is adapted. With its outputs cut, each rank has all of A and computes the
// part of A's gradient that its outputs give; with its inputs cut, the same of B.
HeldAdapter held_adapter(const LoraParam& adapter, const HeldParameter& base);

// The lowest of `virtual_stages` with a trainable parameter, when the blocks below `lowest_layer`, and with
// `lowest_layer` > 0 the embedding, are frozen. The last one where only the head can be trained.
int64_t first_trainable_stage(const ModelSpec& model, int64_t virtual_stages, int64_t lowest_layer);

// Where backward ends in a shard, for blocks frozen as above: its own lowest block that has a backward (the number of
// its blocks if none has), and whether backward goes on to the shard's input.
struct BackwardEnd {
  int64_t lowest_layer = 0;
  bool input_gradient = false;
};
BackwardEnd backward_end(const ModelSpec& model, const ModelShard& shard, int64_t lowest_layer);

}  // namespace ingot::spec
