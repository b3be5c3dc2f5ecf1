// Self-attention with grouped key/value heads, from the output of the norm before it to the output projection. Letters:
// T tokens, H hidden, Q heads, G kv heads, D head size.
#pragma once

#include <array>

#include "nn/block_state.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/columns.h"

namespace ingot::nn {

struct Attention {
  Linear qkv;      // one fused layer, in families that have it
  Linear q, k, v;  // otherwise three layers
  Linear o;
  Norm q_norm, k_norm;       // may be absent; they normalise groups as wide as their weight: one head, or all heads
  bool qkv_by_head = false;  // fused rows: q, k, v of head 0, of head 1, ...; otherwise all Q, all K, all V
  float clip = 0;            // with the fused layer: q, k and v are clamped to [-clip, clip]; 0: no clamping
  Tensor frequencies;        // [rotated pairs] f32; absent when q and k are not rotated
  int64_t layer = 0;         // index of this layer in the cache
  ops::AttentionAttributes attributes;

  // Fills state.q .. state.lse from state.attention_normed, which has all rows here. out [T, H] = o(attended), or this
  // rank's rows of it (nn/row_exchange.h), plus `residual` unless it is absent (as in Linear::forward); out is absent
  // when only the state is to be filled. With a KV cache in the pass, the new keys and values are stored there and
  // attention reads from there. With Pass::cp, state.q and lse become those of this rank's heads, in the memory of
  // theirs; so do k and v, except where ranks share heads. With Pass::key_values and Pass::ring, state.lse has one
  // matrix [Q, T / 2] for each chunk.
  void forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual) const;

  // dout [T, H]: the gradient of o(attended); not modified. dnormed [T, H], or this rank's rows of it, is assigned the
  // gradient of state.attention_normed; absent when no gradient is needed below. Overwrites state.q and state.k.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // All linear layers and norms, also those that are absent.
  std::vector<Linear*> linears() { return {&qkv, &q, &k, &v, &o}; }
  std::vector<Norm*> norms() { return {&q_norm, &k_norm}; }

  // Scratch bytes of forward and of backward, as in Block.
  static size_t forward_bytes(const spec::Attention& spec, int64_t hidden, const PassShape& shape);
  static size_t backward_bytes(const spec::Attention& spec, int64_t hidden, const PassShape& shape);

 private:
  std::array<ops::ColumnsAttributes, 3> columns() const;
  void project(Pass& pass, BlockState& state) const;
  ops::AttentionAttributes attributes_of(const HeadExchange& exchange) const;
  Tensor memory_of_heads(Pass& pass, const Tensor& x, int64_t heads) const;
  // Fills state.attention_context and lse.
  void attend(Pass& pass, BlockState& state) const;
  void attend_to_gathered(Pass& pass, BlockState& state) const;  // with Pass::key_values
  struct Gradients {
    Tensor dq, dk, dv;  // [T, Q D], [T, G D]: assigned
  };
  // dcontext [T, Q D] is overwritten with Pass::cp.
  void attend_backward(Pass& pass, const Gradients& gradients, const Tensor& dcontext, const BlockState& state) const;
  void attend_to_gathered_backward(Pass& pass, const Gradients& gradients, const Tensor& dcontext,
                                   const BlockState& state) const;
  void rotate(Pass& pass, const Tensor& queries, const Tensor& keys, bool inverse) const;
};

}  // namespace ingot::nn
