// Attention as cuDNN's operation graphs. Letters: S sequences, T max tokens of one, H heads, G key/value heads, D head
// size.
#pragma once

#include <cstdint>
#include <deque>

#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/cudnn_backend.h"

namespace ingot::gpu::cudnn {

// Unique ids of the tensors whose data a call passes. Those inside a graph have ids from `first_inner` on.
enum Uid : int64_t {
  q = 1,
  k,
  v,
  out,
  lse,
  offsets,
  lengths,
  q_offsets,
  kv_offsets,
  scale,
  mask_value,
  window_size,
  first_inner
};

// A graph, and the descriptors that it refers to.
struct Graph {
  std::deque<Descriptor> parts;
  Descriptor graph;
};

// The forward pass over packed sequences as the operation SDPA with the masks as a subgraph, from cuDNN 9.24 on. The
// sequence offsets are passed twice: as the offsets where rows begin (in rows; a multiplier converts them to elements)
// and as cumulative sequence lengths (Uid::offsets and lengths). `handle` may be null.
Graph sdpa_graph(const Functions& functions, void* handle, const PackedAttention& call);

// The same as the sequence of operations that cuDNN recognises as attention, from 9.10 on: gemm, scale, masks, softmax,
// gemm. Uid::lengths is the length of each sequence, q_offsets and kv_offsets where its rows begin, in elements, and
// offsets the same for lse.
Graph composite_graph(const Functions& functions, void* handle, const PackedAttention& call);

}  // namespace ingot::gpu::cudnn
