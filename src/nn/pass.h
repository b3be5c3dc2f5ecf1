// What one run of a model is given besides its weights. The same layers serve training, filling and decoding: what
// differs is handed in here.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "nn/gradient_sink.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "spec/sizes.h"
#include "tensor/arena.h"
#include "tensor/weight.h"

namespace ingot::nn {

// A flat batch of T tokens: whole packed sequences in training, pieces of prompts or one token a sequence in serving.
struct TokenBatch {
  Tensor ids;        // [T] i32
  Tensor positions;  // [T] i32, from 0 in every sequence
  Tensor offsets;    // [S + 1] i32: sequence s is rows offsets[s] .. offsets[s + 1]
  int64_t tokens() const { return ids.rows(); }
};

// Low-rank weights of one linear layer (spec/lora.h): y += factor B A x.
struct LoraWeights {
  Tensor a;              // [rank, in], of the activations' type
  Tensor b;              // [out, rank]
  int a_trainable = -1;  // place among the trained parameters, -1 when frozen
  int b_trainable = -1;
};

// An adapter: low-rank weights for some of a model's linear layers.
struct Adapter {
  float factor = 1;
  float dropout = 0;                // of the adapter's input, in training only
  std::vector<LoraWeights> layers;  // by index of the base weight in spec::parameters; without `a` where not adapted
};

// Rows [begin, end) of the batch want this adapter.
struct AdapterSegment {
  int64_t begin = 0;
  int64_t end = 0;
  const Adapter* adapter = nullptr;
};

// Serving: low-rank terms of any mix of adapters (ops/lora.h), a row its own.
struct LoraBatch {
  Tensor entries;              // [slots, parameters, 3] i64: by index of the base weight in spec::parameters
  Tensor slots;                // [T] i32: which slot a row has, -1 for none
  std::vector<int32_t> host;   // what `slots` holds
  std::vector<int64_t> ranks;  // by parameter: the largest in any slot that rows have, 0 where none adapts it
};

// Serving: where keys and values live, and where this batch's tokens go.
struct KvCache {
  std::vector<ops::KvPages> layers;
  Tensor slots;  // [T] i32, see ops::kv_store
  ops::PagedLayout layout;
};

// Training only.
struct Training {
  GradientSink& sink;
  std::vector<int64_t> unit_offsets;  // [U + 1]: unit u (determinism_unit packed sequences) is rows [u] .. [u + 1]
  spec::Recompute recompute = spec::Recompute::none;
  Arena& saved;         // sized by spec::saved_bytes
  Tensor dropout_rows;  // [T] i64: (sample << 32) + position in it; needed where an adapter has dropout
  uint64_t dropout_seed = 0;
  uint64_t step = 0;
  Storage fp8_gradients = Storage::fp8_e4m3;  // of a pass in fp8: what gradients of activations are rounded to
};

struct Pass {
  ops::Context& ops;
  const TokenBatch& batch;
  DType activation = DType::f32;  // f32, bf16 or, outside training, f16
  std::vector<AdapterSegment> adapters;
  KvCache* cache = nullptr;      // null: attention inside the batch's own sequences
  Training* training = nullptr;  // null: nothing is kept for backward
  bool fp8 = false;              // the blocks' linear layers multiply in fp8; LoRA's and the rest stay as they are
  // Of a model in parts (spec/part.h), with the ranks of the same stage and of the same tensors; no adapters then.
  comm::Group tp{};
  comm::Group pp{};
  // With a cache, or in its head: low-rank terms in place of `adapters`; and whether a row's bits must not depend on
  // how many rows there are (ops::LinearAttributes), as they never do without a cache.
  const LoraBatch* lora = nullptr;
  bool any_rows = false;
};

// What decides how much scratch memory a pass takes, besides the model.
struct PassShape {
  int64_t tokens = 0;        // most tokens in a batch
  int64_t longest = 0;       // most tokens in one of its sequences, cached ones included
  int64_t logit_rows = 0;    // most rows asked of logits(); 0 when only losses are wanted
  int64_t adapter_rank = 0;  // largest rank; 0 without adapters
  DType activation = DType::f32;
  bool decoded = false;  // weights are not of the activations' type, so they are decoded as they are used
  bool fp8 = false;      // as Pass
  int64_t tp = 1;        // ranks that share the tensors
  int threads = 1;

  // What an arena gives a matrix [rows, features] of activations.
  size_t matrix_bytes(int64_t rows, int64_t features) const {
    return Arena::footprint(static_cast<size_t>(rows * features) * size_of(activation));
  }
};

}  // namespace ingot::nn
