// The inputs of one run of a model besides its weights. Training, prefill and decode use the same layers; everything in
// which they differ is passed in here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "nn/gradient_accumulator.h"
#include "nn/weight_gatherer.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "spec/context_rows.h"
#include "spec/sizes.h"
#include "spec/traffic.h"
#include "tensor/arena.h"
#include "tensor/weight.h"

namespace ingot::nn {

// A flat batch of T tokens: whole packed sequences in training; in serving, prompt chunks or one token per sequence.
struct TokenBatch {
  Tensor ids;        // [T] i32
  Tensor positions;  // [T] i32, from 0 in every sequence
  Tensor offsets;    // [S + 1] i32: sequence s is rows offsets[s] .. offsets[s + 1]; see Pass::cp
  int64_t tokens() const { return ids.rows(); }
};

// Low-rank weights of one linear layer (spec/lora.h): y += factor B A x.
struct LoraWeights {
  Tensor a;              // [rank, in], of the activations' type
  Tensor b;              // [out, rank]
  int a_trainable = -1;  // index among the trainable parameters, -1 when frozen
  int b_trainable = -1;
};

// An adapter: low-rank weights for some of a model's linear layers.
struct Adapter {
  float factor = 1;
  float dropout = 0;                // of the adapter's input; in training only
  std::vector<LoraWeights> layers;  // by index of the base weight in spec::parameters; no `a` if not adapted
};

// Rows [begin, end) of the batch use this adapter.
struct AdapterSegment {
  int64_t begin = 0;
  int64_t end = 0;
  const Adapter* adapter = nullptr;
};

// Serving: low-rank terms of any mix of adapters, one adapter per row (ops/lora.h).
struct LoraBatch {
  Tensor entries;              // [slots, parameters, 3] i64: indexed like the base weights in spec::parameters
  Tensor slots;                // [T] i32: the slot of each row, -1 for none
  std::vector<int32_t> host;   // the values of `slots`
  std::vector<int64_t> ranks;  // by parameter: the largest rank in the slots that rows use, 0 if none adapts it
};

// Serving: where keys and values are stored, and the slots of this batch's tokens.
struct KvCache {
  std::vector<ops::KvPages> layers;
  Tensor slots;  // [T] i32, see ops::kv_store
  ops::PagedLayout layout;
};

class DeferredGradients;
class DeviceSum;
class ExpertExchange;
class HeadExchange;
class KeyValueGather;
class KeyValueRing;
class RowExchange;

// Training only. An accumulation unit is `determinism_unit` packed sequences, or one of equal parts of them
// (BatchUploader::Share::slices), or all of the micro-batch (train::gradient_unit), whose gradient is added as one
// contribution.
struct Training {
  GradientAccumulator& accumulator;
  std::vector<int64_t> accumulation_offsets;  // [U + 1]: unit u is rows [u] .. [u + 1]
  spec::Recompute recompute = spec::Recompute::none;
  Tensor dropout_rows;  // [T] i64: (sample << 32) + position in it; required when an adapter has dropout
  uint64_t dropout_seed = 0;
  uint64_t step = 0;
  StorageType fp8_gradients = StorageType::fp8_e4m3;  // in an fp8 pass: what gradients of activations are rounded to
  // If not null, backward leaves the gradients of linear layers' weights, biases and adapters to it; those of experts,
  // norms, embeddings and the head are still computed in backward and loss.
  DeferredGradients* deferred = nullptr;

  // The same for rows [begin, end). Units keep their numbers; some may be empty.
  Training rows(int64_t begin, int64_t end) const {
    Training part = *this;
    for (int64_t& offset : part.accumulation_offsets) offset = std::clamp(offset, begin, end) - begin;
    if (part.dropout_rows) part.dropout_rows = dropout_rows.slice(begin, end);
    return part;
  }
};

// The ranks that hold the other shards of a model's layers (spec/model_shard.h).
struct TensorParallel {
  comm::Group group;         // a group of one: the model is whole
  DeviceSum* sum = nullptr;  // what they exchange device memory by; null: by way of host memory
  // Training, with sequence parallelism: norms and the residual have this rank's share of the batch's rows
  // (nn/row_exchange.h); null: all of them.
  RowExchange* rows = nullptr;
  // Training: with more than one slice, a power of two, sums over what is cut are taken in as many (nn/sliced_sum.h),
  // of which this rank has `own_slices`, from `first_slice` on.
  int64_t slices = 1, own_slices = 1, first_slice = 0;
  spec::Traffic* traffic = nullptr;  // if not null, what is exchanged is added to it

  bool sliced() const { return slices > 1; }
  void count(spec::Collective collective, size_t bytes) const {
    if (traffic != nullptr) traffic->add({spec::Axis::tp, collective}, static_cast<int64_t>(bytes));
  }
};

// Follows a pass from layer to layer.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // Before the weights of the layer that comes next are gathered or waited for. Arguments as below; not where a layer
  // needs no weights.
  virtual void comes_to(int64_t layer, bool backward) = 0;
  // Before the computations of a block, of what is before the blocks (layer -1) or of what is after them (their number,
  // in forward only), in the whole model's numbers. The layer's weights are there.
  virtual void begins(int64_t layer, bool backward) = 0;
};

struct Pass {
  ops::Context& ops;
  const TokenBatch& batch;
  DType activation = DType::f32;  // f32, bf16 or, outside training, f16
  std::vector<AdapterSegment> adapters;
  KvCache* cache = nullptr;       // null: attention inside the batch's own sequences
  Training* training = nullptr;   // null: backward state is not saved
  bool fp8 = false;               // the blocks' linear layers use fp8 gemms; LoRA and the rest do not
  bool int8_activations = false;  // linear layers with weights in q8_0 or q4_0 are ops::linear_int8; not in training
  TensorParallel tp{};
  // All null: the batch's rows are all here. With one of them, this rank has an equal share of the rows
  // (spec/context_rows.h), which the tensors of `batch` are, except its offsets: those are of all rows. Not with a
  // cache.
  HeadExchange* cp = nullptr;
  KeyValueGather* key_values = nullptr;
  KeyValueRing* ring = nullptr;
  // Null: all experts of mixtures are here. Otherwise this rank has some of them (nn/expert_exchange.h). Not with a
  // cache.
  ExpertExchange* ep = nullptr;
  WeightGatherer* weights = nullptr;  // null: all weights are there
  PassObserver* observer = nullptr;   // null: none
  // Serving (a forward with a cache, and its logits): low-rank terms in place of `adapters`; and whether a row's bits
  // must not depend on the number of rows (ops::LinearAttributes). Without a cache they never depend on it.
  const LoraBatch* lora = nullptr;
  bool row_invariant = false;
  // Training: bits may depend on the number of rows, which is that of an accumulation unit; where that is the whole
  // micro-batch (train::gradient_unit), bits depend on it anyway.
  bool fixed_rows = false;
};

// What determines the scratch bytes of a pass, besides the model.
struct PassShape {
  int64_t tokens = 0;        // max tokens in a batch
  int64_t longest = 0;       // max tokens in one of its sequences, cached ones included
  int64_t logit_rows = 0;    // max rows of logits(); 0 when only losses are computed
  int64_t adapter_rank = 0;  // max rank; 0 without adapters
  DType activation = DType::f32;
  bool decoded = false;  // weights are stored in another type than the activations, so they are decoded when used
  bool fp8 = false;      // as in Pass
  bool int8_activations = false;
  int64_t tp = 1;                  // number of tensor-parallel ranks
  bool sequence_parallel = false;  // TensorParallel::rows
  int64_t slices = 1;              // as in TensorParallel, of all ranks
  int64_t cp = 1;                  // ranks that share the rows of a batch, of which `tokens` are this one's
  spec::CpCommType cp_comm_type = spec::CpCommType::a2a;  // Pass::cp, key_values or ring
  int64_t pp = 1;                                         // in inference: stages of a pipeline
  int threads = 1;
  bool cached = false;      // Pass::cache
  bool lora_batch = false;  // adapters are in Pass::lora, whose op needs no low-rank tensors
  // Device::host_visible: a mixture computes one expert after another (nn/experts.h), and weights are decoded in slices
  // that fit in a cache (ops::decoded_rows).
  bool host_visible = false;

  // The ranks among which the rows of the residual and of norms are divided, and those of one rank, of `rows`.
  int64_t own_ranks() const { return sequence_parallel ? tp : 1; }
  int64_t own_rows(int64_t rows) const { return rows / own_ranks(); }

  // Bytes that an arena uses for a matrix [rows, features] of activations.
  size_t matrix_bytes(int64_t rows, int64_t features) const {
    return Arena::footprint(static_cast<size_t>(rows * features) * size_of(activation));
  }
};

}  // namespace ingot::nn
